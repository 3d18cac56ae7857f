-- Rules over requests, as a proxy's scripts have them; what the profiled scripts don't do: parsing, recursion,
-- matrices, coroutines and errors. usage: rules.lua ROUNDS
local function tokens(text)
    return coroutine.wrap(function()
        for number, symbol in text:gmatch("%s*(%d*)([%+%-%*%(%)]?)") do
            if number ~= "" then
                coroutine.yield(tonumber(number))
            end
            if symbol ~= "" then
                coroutine.yield(symbol)
            end
        end
    end)
end

local function evaluate(text)
    local following = tokens(text)
    local token = following()
    local sum
    local function atom()
        local found = token
        token = following()
        if found == "(" then
            found = sum()
            token = following()
        end
        if type(found) ~= "number" then
            error("expected a number")
        end
        return found
    end
    local function product()
        local value = atom()
        while token == "*" do
            token = following()
            value = value * atom()
        end
        return value
    end
    sum = function()
        local value = product()
        while token == "+" or token == "-" do
            local sign = token == "+" and 1 or -1
            token = following()
            value = value + sign * product()
        end
        return value
    end
    return sum()
end

local function multiplied(one, other)
    local size, product = #one, {}
    for i = 1, size do
        local row = {}
        for j = 1, size do
            local sum = 0
            for k = 1, size do
                sum = sum + one[i][k] * other[k][j]
            end
            row[j] = sum
        end
        product[i] = row
    end
    return product
end

local function allowed(request, rules)
    for _, rule in ipairs(rules) do
        if request.path:find(rule.prefix, 1, true) == 1 and rule.methods[request.method] then
            return rule.test(request)
        end
    end
    return false
end

local rules = {
    { prefix = "/admin", methods = { GET = true }, test = function(r) return r.headers["x-key"] == "secret" end },
    { prefix = "/api/", methods = { GET = true, POST = true }, test = function(r) return #r.path < 40 end },
    { prefix = "/", methods = { GET = true }, test = function() return true end },
}

local checksum = 0
for round = 1, tonumber(arg[1]) do
    local passed = 0
    for number = 1, 1500 do
        local request = {
            path = (number % 5 == 0 and "/admin/" or number % 3 == 0 and "/api/v1/" or "/static/") .. number,
            method = number % 4 == 0 and "POST" or "GET", headers = { ["x-key"] = number % 2 == 0 and "secret" or "" },
        }
        if allowed(request, rules) then
            passed = passed + 1
        end
    end
    local matrix = {}
    for i = 1, 24 do
        matrix[i] = {}
        for j = 1, 24 do
            matrix[i][j] = (i * j + round) % 7
        end
    end
    matrix = multiplied(matrix, multiplied(matrix, matrix))
    local value = 0
    for number = 1, 120 do
        value = value + evaluate("(" .. number .. " + 3) * 2 - (4 * " .. number .. " + (7 - 2))")
        local good = pcall(evaluate, number % 3 == 0 and "(1 + )" or "1 + 2")
        value = value + (good and 1 or 2)
    end
    checksum = (checksum * 31 + passed + matrix[5][7] + value) % 1000000007
end
print(checksum)
