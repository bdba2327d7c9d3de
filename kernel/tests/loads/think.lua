-- Each connection thinks for 1 to 20 ms between requests.
math.randomseed(1)
function delay() return math.random(1, 20) end
