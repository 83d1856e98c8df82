-- SPDX-License-Identifier: Apache-2.0
-- A test or a replay brings its own time. Redis's clock must not expire a state that this time still needs, so the key
-- gets one hour more.
EXPIRY, epoch = 'PX', floor(now / 1000) - 3600000
