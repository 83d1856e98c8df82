-- SPDX-License-Identifier: Apache-2.0
-- A smaller bucket has cut this one's TAT off: what another size denies changes nothing for it.
tat, part, refunded, needed = tat + cut, cut_part, (refunded - cut - 1) % 2 ^ 52, nil
