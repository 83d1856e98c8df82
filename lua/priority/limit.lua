-- SPDX-License-Identifier: Apache-2.0
-- Priority: follows the ask of a limit, in policies whose requests are of several classes.
--
-- question  kept_percent: the percentage of each limit that is kept for requests of other classes
do
  local quota = limit
  -- include keep
end
