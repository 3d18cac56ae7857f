-- Ways through a graph: numbers, arrays and a heap. usage: graph.lua ROUNDS
local function made(nodes)
    local edges, state = {}, 12345
    for node = 1, nodes do
        edges[node] = {}
        for _ = 1, 5 do
            state = (state * 16807) % 2147483647
            edges[node][#edges[node] + 1] = { to = state % nodes + 1, cost = state % 97 + 1 }
        end
    end
    return edges
end

local function push(heap, cost, node)
    local place = #heap + 1
    heap[place] = { cost, node }
    while place > 1 do
        local parent = math.floor(place / 2)
        if heap[parent][1] <= heap[place][1] then
            return
        end
        heap[parent], heap[place], place = heap[place], heap[parent], parent
    end
end

local function pop(heap)
    local top, last = heap[1], table.remove(heap)
    if #heap == 0 then
        return top
    end
    heap[1] = last
    local place = 1
    while true do
        local child = place * 2
        if child > #heap then
            return top
        end
        if child < #heap and heap[child + 1][1] < heap[child][1] then
            child = child + 1
        end
        if heap[place][1] <= heap[child][1] then
            return top
        end
        heap[child], heap[place], place = heap[place], heap[child], child
    end
end

local edges, total = made(2000), 0
for round = 1, tonumber(arg[1]) do
    local costs, heap = {}, {}
    push(heap, 0, round % 2000 + 1)
    while #heap > 0 do
        local found = pop(heap)
        local cost, node = found[1], found[2]
        if not costs[node] then
            costs[node] = cost
            for _, edge in ipairs(edges[node]) do
                if not costs[edge.to] then
                    push(heap, cost + edge.cost, edge.to)
                end
            end
        end
    end
    for node = 1, 2000 do
        total = (total + (costs[node] or 0)) % 1000000007
    end
end
print(total)
