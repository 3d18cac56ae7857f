-- Texts made of templates: strings, patterns and concatenation. usage: template.lua ROUNDS
local source = [[
Dear {title} {name}, your {count} parcels of {date} are on their way to {street} {number}, {city}.
{greeting}, {company}, {street} {number}
]]

local function compile(text)
    local parts = {}
    for literal, name in (text .. "{}"):gmatch("([^{]*){(%w*)}") do
        parts[#parts + 1] = function() return literal end
        if name ~= "" then
            parts[#parts + 1] = function(values) return tostring(values[name] or "?") end
        end
    end
    return function(values)
        local out = {}
        for place, part in ipairs(parts) do
            out[place] = part(values)
        end
        return table.concat(out)
    end
end

local length, words = 0, {}
for round = 1, tonumber(arg[1]) do
    local letter = compile(source)
    for number = 1, 300 do
        local text = letter({
            title = number % 2 == 0 and "Ms" or "Mr", name = "Name" .. number, count = number % 9 + 1,
            date = string.format("%02d.%02d.2026", number % 28 + 1, round % 12 + 1), street = "Street",
            number = number * 3, city = ("City" .. number % 50):upper(), greeting = "Yours", company = "Shop",
        })
        length = length + #text:gsub("%s+", " ")
        for word in text:gmatch("%a+") do
            words[word] = (words[word] or 0) + 1
        end
    end
end
print(length, words.City or words.CITY)
