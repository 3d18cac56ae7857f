-- Orders of a shop: tables, methods and closures. usage: orders.lua ROUNDS
local Order = {}
Order.__index = Order

function Order.new(id, customer)
    return setmetatable({ id = id, customer = customer, lines = {}, state = "new" }, Order)
end

function Order:add(article, count, price)
    self.lines[#self.lines + 1] = { article = article, count = count, price = price }
end

function Order:total(discount)
    local sum = 0
    for _, line in ipairs(self.lines) do
        sum = sum + discount(line.count * line.price, line)
    end
    return sum
end

local function bulk(least, share)
    return function(amount, line)
        return line.count >= least and amount * (1 - share) or amount
    end
end

local checksum = 0
for round = 1, tonumber(arg[1]) do
    local orders, by_customer = {}, {}
    for id = 1, 2000 do
        local order = Order.new(id, "customer" .. (id * 7 + round) % 97)
        for line = 1, id % 7 + 1 do
            order:add("article" .. line, (id + line) % 13, line * 3 + 0.5)
        end
        orders[id] = order
    end
    local discount = bulk(10, 0.15)
    for _, order in ipairs(orders) do
        by_customer[order.customer] = (by_customer[order.customer] or 0) + order:total(discount)
        order.state = #order.lines > 3 and "large" or "small"
    end
    local ranked = {}
    for customer, sum in pairs(by_customer) do
        ranked[#ranked + 1] = { customer = customer, sum = sum }
    end
    table.sort(ranked, function(one, other) return one.sum > other.sum end)
    checksum = (checksum * 31 + math.floor(ranked[1].sum)) % 1000000007
end
print(checksum)
