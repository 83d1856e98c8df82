-- SPDX-License-Identifier: Apache-2.0
-- A smaller bucket has cut this one's TAT off. Restores it: a denial by another size must not change this one.
tat, part, refunded, needed = tat + cut, cut_part, (refunded - cut - 1) % 2 ^ 52, nil
