-- What the Lua interpreter does while its gain is measured: a bit of everything that scripts do.
-- usage: lua work.lua AMOUNT

local amount = tonumber(arg and arg[1]) or 1
local checksum = 0

local function add(number)
    checksum = (checksum * 31 + number) % 1000000007
end

local function fibonacci(n)
    if n < 2 then
        return n
    end
    return fibonacci(n - 1) + fibonacci(n - 2)
end

-- Records, which are objects with methods.
local Account = {}
Account.__index = Account

function Account.new(owner, balance)
    return setmetatable({ owner = owner, balance = balance, history = {} }, Account)
end

function Account:transfer(other, sum)
    if self.balance < sum then
        return false
    end
    self.balance = self.balance - sum
    other.balance = other.balance + sum
    self.history[#self.history + 1] = -sum
    other.history[#other.history + 1] = sum
    return true
end

local function bank()
    local accounts = {}
    for number = 1, 50 do
        accounts[number] = Account.new("owner" .. number, 1000)
    end
    local place, failed = 1, 0
    for step = 1, 20000 do
        place = (place * 7 + step) % 50 + 1
        if not accounts[place]:transfer(accounts[step % 50 + 1], step % 97) then
            failed = failed + 1
        end
    end
    local sum = 0
    for _, account in ipairs(accounts) do
        sum = sum + account.balance + #account.history
    end
    add(sum)
    add(failed)
end

-- A text is split, counted and put together again.
local function words()
    local parts = {}
    for number = 1, 2000 do
        parts[#parts + 1] = "word" .. number % 173 .. (number % 5 == 0 and ", " or " ")
    end
    local text, counts = table.concat(parts), {}
    for word in text:gmatch("%a+%d+") do
        counts[word] = (counts[word] or 0) + 1
    end
    local names = {}
    for name in pairs(counts) do
        names[#names + 1] = name
    end
    table.sort(names, function(one, other)
        if counts[one] ~= counts[other] then
            return counts[one] > counts[other]
        end
        return one < other
    end)
    add(#names)
    add(#text:gsub("word(%d)", "<%1>"))
    add(#text:upper():rep(3, "-"))
    for rank = 1, 20 do
        add(#string.format("%3d %-10s %6.2f", rank, names[rank], counts[names[rank]] / 3))
    end
end

local function bodies()
    local all = {}
    for number = 1, 5 do
        all[number] = { x = number, y = number * 0.5, z = 1 / number, vx = 0, vy = 0.1, vz = 0, mass = 1 / number }
    end
    for _ = 1, 400 do
        for i = 1, #all do
            local one = all[i]
            for j = i + 1, #all do
                local other = all[j]
                local dx, dy, dz = one.x - other.x, one.y - other.y, one.z - other.z
                local square = dx * dx + dy * dy + dz * dz + 0.01
                local force = 0.001 / (square * math.sqrt(square))
                one.vx = one.vx - dx * other.mass * force
                one.vy = one.vy - dy * other.mass * force
                one.vz = one.vz - dz * other.mass * force
                other.vx = other.vx + dx * one.mass * force
                other.vy = other.vy + dy * one.mass * force
                other.vz = other.vz + dz * one.mass * force
            end
        end
        for _, body in ipairs(all) do
            body.x = body.x + 0.001 * body.vx
            body.y = body.y + 0.001 * body.vy
            body.z = body.z + 0.001 * body.vz
        end
    end
    add(math.floor(all[1].x * 1000000))
end

local function sieve()
    local composite, count = {}, 0
    for number = 2, 20000 do
        if not composite[number] then
            count = count + 1
            for multiple = number * number, 20000, number do
                composite[multiple] = true
            end
        end
    end
    add(count)
end

local function queens(n)
    local columns, rising, falling, found = {}, {}, {}, 0
    local function place(row)
        if row > n then
            found = found + 1
            return
        end
        for column = 1, n do
            local up, down = row + column, row - column + n
            if not (columns[column] or rising[up] or falling[down]) then
                columns[column], rising[up], falling[down] = true, true, true
                place(row + 1)
                columns[column], rising[up], falling[down] = nil, nil, nil
            end
        end
    end
    place(1)
    add(found)
end

local function generated()
    local function numbers(limit)
        return coroutine.wrap(function()
            for number = 1, limit do
                coroutine.yield(number)
            end
        end)
    end
    local sum = 0
    for number in numbers(5000) do
        sum = sum + (number ~ (number >> 3)) % 11
    end
    add(sum)
    for number = 1, 1000 do
        local good, message = pcall(function()
            if number % 10 == 0 then
                error("ten")
            end
            return number
        end)
        add(good and message or #tostring(message))
    end
end

for _ = 1, amount do
    add(fibonacci(22))
    bank()
    words()
    bodies()
    sieve()
    queens(7)
    generated()
end
print(checksum)
