-- Decides what wrk sends: every body in turn, over and over if there are more requests than bodies; then nothing, so that every request is
-- answered and the number of acknowledged records is exact. wrk itself would stop in the middle of the last requests. wrk.ts starts this
-- and reads its output.
--
-- Arguments: number of connections, of requests, of bodies. Standard input: one line per body, then one line as the signal to begin.
-- Standard output: the lines "bench: ready", "bench: answered" after the last answer, and at the end the counts. There must be one thread.
-- `response` is not defined, since it would double wrk's CPU.

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

-- No line means that the bench has ended.
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
  -- wrk only parses the first text, to count the requests in it.
  if asked == 0 then return texts[1] end
  if asked <= wanted then return texts[(asked - 1) % count + 1] end
  -- A connection asks for a request when its last one was answered, and never again after an empty text.
  silent = silent + 1
  if silent == connections then say('answered') end
  return ''
end

function done(summary)
  -- `status` counts answers with a status of 400 or more.
  local errors = summary.errors
  say(string.format('answers %d connect %d read %d write %d status %d timeout %d', summary.requests,
    errors.connect, errors.read, errors.write, errors.status, errors.timeout))
end
