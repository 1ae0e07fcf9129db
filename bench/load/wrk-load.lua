-- What wrk sends: every body once in turn, and over again if there are more requests than bodies; then nothing, so
-- that every request that was sent is answered, and what was acknowledged is known exactly. wrk by itself would end in
-- the middle of the last requests. ../bench/wrk.ts starts it and reads what it says.
--
-- Arguments: the connections, the requests, the bodies. Standard input: a line for each body, then one when it may begin.
-- Standard output: lines of "bench: ready", "bench: answered" after the last answer, and the counts in the end.
-- There must be one thread. `response` is not defined, since that would cost wrk as much again as all the rest.

wrk.method = 'POST'
wrk.headers['Content-Type'] = 'application/json'

local texts = {}
local count, connections, wanted
local asked = -1
local silent = 0

local function say(words)
  io.write('bench: ', words, '\n')
  io.flush()
end

-- A line that does not come means that the bench is gone.
local function readLine()
  local line = io.read()
  if line == nil then os.exit(1) end
  return line
end

function init(arguments)
  connections, wanted, count = tonumber(arguments[1]), tonumber(arguments[2]), tonumber(arguments[3])
  for i = 1, count do texts[i] = wrk.format(nil, nil, nil, readLine()) end
  say('ready')
  readLine()
end

function request()
  asked = asked + 1
  -- The first is only parsed: wrk wants to know how many requests are in it.
  if asked == 0 then return texts[1] end
  if asked <= wanted then return texts[(asked - 1) % count + 1] end
  -- A connection asks when its last request is answered, and never again once it got nothing.
  silent = silent + 1
  if silent == connections then say('answered') end
  return ''
end

function done(summary)
  local errors = summary.errors
  say(string.format('answers %d connect %d read %d write %d status %d timeout %d', summary.requests,
    errors.connect, errors.read, errors.write, errors.status, errors.timeout))
end
