-- SPDX-License-Identifier: Apache-2.0
-- The books of the refund service in PostgreSQL: charges, refunds, and a double-entry ledger in which every movement is
-- written twice, once for each account.

CREATE TABLE charges (
    number   integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    amount   integer NOT NULL CHECK (amount > 0),
    refunded integer NOT NULL DEFAULT 0 CHECK (refunded BETWEEN 0 AND amount),
    currency text NOT NULL,
    created  timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE refunds (
    number  integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    charge  integer NOT NULL REFERENCES charges,
    amount  integer NOT NULL CHECK (amount > 0),
    created timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE entries (
    number  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    account text NOT NULL,
    amount  integer NOT NULL,                  -- positive: debit, negative: credit
    reason  text NOT NULL
);

INSERT INTO charges (amount, currency) VALUES (5000, 'USD');
INSERT INTO entries (account, amount, reason)
VALUES ('customer', 5000, 'charge ch_1'), ('merchant', -5000, 'charge ch_1');
