-- What wrk sends to the service in shop.py: reads, or with the argument "mixed" also orders and pages.
local mixed, sent = false, 0

function init(arguments)
    mixed = arguments[1] == "mixed"
end

function request()
    sent = sent + 1
    local headers = { ["User-Agent"] = "shop-client/2." .. sent % 9, ["Accept"] = "application/json" }
    local customer = "customer-" .. sent * 7919 % 200
    if mixed and sent % 3 == 0 then
        headers["Content-Type"] = "application/json"
        local body = '{"customer": "' .. customer .. '", "note": "gate ' .. sent .. '", "items": ['
            .. '{"name": "Tea", "count": ' .. 1 + sent % 7 .. ', "price": "3.95"}, '
            .. '{"name": "Crème brûlée", "count": 2, "price": "' .. sent % 50 .. '.50"}]}'
        return wrk.format("POST", "/orders", headers, body)
    elseif mixed and sent % 3 == 1 then
        return wrk.format("GET", "/customers/" .. customer .. "/page", headers)
    elseif sent % 4 == 0 then
        return wrk.format("GET", "/customers/" .. customer .. "/orders?limit=" .. 5 + sent % 10, headers)
    end
    return wrk.format("GET", "/orders/" .. 1 + sent * 7919 % 4000, headers)
end
