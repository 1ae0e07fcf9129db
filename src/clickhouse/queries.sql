-- Ten questions about events, answered by ClickHouse as the user `reader`. Put your environment's app_id in the place of 42. Each says
-- how many seconds of CPU it takes among 3 million events of 80,000 merged users, and among 100 million of 2.7 million, with eight
-- properties each, on two cores of 2.1 GHz. `user_events` joins merged users, which costs most of it, and up to 5 GB of memory among
-- 100 million: name a time where you can. `events` does not. `number` makes a property's text a number, or NULL, which averages leave out.

-- Daily active users. 0.80 and 60 s.
SELECT toDate(time) AS day, uniqExact(person) AS users
FROM user_events WHERE app_id = '42' AND time > now() - INTERVAL 90 DAY
GROUP BY day ORDER BY day;

-- New users by week: who was never seen before. 2.8 and 106 s.
SELECT toMonday(first) AS week, count() AS users
FROM (SELECT person, min(time) AS first FROM user_events WHERE app_id = '42' GROUP BY person)
GROUP BY week ORDER BY week;

-- A funnel: how many users take these steps in this order within a day. 4.2 and 190 s.
SELECT ['Page View', 'Added To Cart', 'Order Completed'][step] AS reached, count() AS users
FROM
(
  SELECT person, windowFunnel(86400000)(
    toUInt64(toUnixTimestamp64Milli(time)), event = 'Page View', event = 'Added To Cart', event = 'Order Completed') AS level
  FROM user_events
  WHERE app_id = '42' AND event IN ('Page View', 'Added To Cart', 'Order Completed')
  GROUP BY person
)
ARRAY JOIN range(1, level + 1) AS step
GROUP BY step ORDER BY step;

-- Retention: of the users who came first in a week, how many came in each week after it. 2.9 and 150 s.
SELECT weeks[1] AS cohort, dateDiff('week', weeks[1], week) AS later, count() AS users
FROM
(
  SELECT person, arraySort(groupUniqArray(toMonday(time))) AS weeks
  FROM user_events WHERE app_id = '42' GROUP BY person
)
ARRAY JOIN weeks AS week
GROUP BY cohort, later ORDER BY cohort, later;

-- Revenue by day and currency, with the average order. 0.11 and 4.9 s.
SELECT
  toDate(time) AS day,
  properties['currency'] AS currency,
  sum(number(properties['amount'])) AS revenue,
  avg(number(properties['amount'])) AS average
FROM events WHERE app_id = '42' AND event = 'Order Completed'
GROUP BY day, currency ORDER BY day, currency;

-- Top pages: views and visitors of the last 30 days. 0.13 and 38 s.
SELECT properties['path'] AS page, count() AS views, uniqExact(person) AS visitors
FROM user_events WHERE app_id = '42' AND event = 'Page View' AND time > now() - INTERVAL 30 DAY
GROUP BY page ORDER BY views DESC, page LIMIT 20;

-- Sessions by day: how many, how long in the middle, and the share with a single event. 0.75 and 31 s.
SELECT
  toDate(first) AS day,
  count() AS sessions,
  quantileExact(0.5)(dateDiff('second', first, last)) AS median_seconds,
  round(countIf(events = 1) / count(), 3) AS bounced
FROM
(
  SELECT session_id, min(time) AS first, max(time) AS last, count() AS events
  FROM events WHERE app_id = '42' AND session_id != '' GROUP BY session_id
)
GROUP BY day ORDER BY day;

-- Where buyers come from: users and revenue by the campaign of their first page view. 4.2 and 160 s.
SELECT source, count() AS users, countIf(paid > 0) AS buyers, sum(paid) AS revenue
FROM
(
  SELECT
    person,
    argMinIf(properties['utm_source'], time, event = 'Page View') AS source,
    sumIf(toFloat64OrZero(properties['amount']), event = 'Order Completed') AS paid
  FROM user_events
  WHERE app_id = '42' AND event IN ('Page View', 'Order Completed')
  GROUP BY person
)
GROUP BY source ORDER BY revenue DESC, source;

-- Revenue by a property that users have now. 0.94 and 46 s.
SELECT user_properties['plan'] AS plan, uniqExact(person) AS buyers, sum(number(properties['amount'])) AS revenue
FROM user_events WHERE app_id = '42' AND event = 'Order Completed'
GROUP BY plan ORDER BY plan;

-- Who has gone: users with at least three orders and nothing in the last 30 days, the best ones first. 3.3 and 140 s.
SELECT person, countIf(event = 'Order Completed') AS orders, max(time) AS seen
FROM user_events WHERE app_id = '42'
GROUP BY person HAVING orders >= 3 AND seen < now() - INTERVAL 30 DAY
ORDER BY orders DESC, person LIMIT 100;
