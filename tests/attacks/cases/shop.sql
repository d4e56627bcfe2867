CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT NOT NULL, price REAL);
INSERT INTO item VALUES (1, 'pen', 1.2), (2, 'ink', 7.5), (3, 'cap', 7.5);
