-- SPDX-License-Identifier: Apache-2.0
-- Debt: the units by which charges may take a limit below zero.
--
-- parameters  debt, after the limit's own: how many times its quota
debt = debt * limit
