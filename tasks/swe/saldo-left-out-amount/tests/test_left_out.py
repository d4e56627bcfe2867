import unittest
from decimal import Decimal

from saldo import JournalError, parse, report
from tests.test_main import run


def postings(*lines):
    (only,) = parse(["2020-08-22 Test", *("  " + line for line in lines)])
    return [tuple(posting) for posting in only.postings]


class LeftOutTest(unittest.TestCase):
    def test_it_is_filled_in(self):
        self.assertEqual(
            postings("Expenses:Food  4.20 EUR", "Assets:Cash"),
            [("Expenses:Food", Decimal("4.20"), "EUR"), ("Assets:Cash", Decimal("-4.20"), "EUR")],
        )

    def test_it_may_stand_anywhere(self):
        self.assertEqual(
            [p[0] for p in postings("A  1 EUR", "B", "C  2 EUR")],
            ["A", "B", "C"],
        )
        self.assertEqual(postings("B", "A  1 EUR", "C  2 EUR")[0], ("B", Decimal(-3), "EUR"))

    def test_a_posting_for_each_currency_in_alphabetical_order(self):
        self.assertEqual(
            postings("A  5 USD", "B", "C  2 EUR", "D  -2 CHF", "E  2 CHF"),
            [
                ("A", Decimal(5), "USD"),
                ("B", Decimal(-2), "EUR"),
                ("B", Decimal(-5), "USD"),
                ("C", Decimal(2), "EUR"),
                ("D", Decimal(-2), "CHF"),
                ("E", Decimal(2), "CHF"),
            ],
        )

    def test_nothing_is_left_to_be_filled_in(self):
        self.assertEqual([p[0] for p in postings("A  1 EUR", "B", "C  -1 EUR")], ["A", "C"])

    def test_aliases(self):
        lines = ["alias kasse = Assets:Cash", "2020-08-22 T", "  A  1 EUR", "  kasse"]
        self.assertEqual(parse(lines)[0].postings[1].account, "Assets:Cash")

    def test_accounts_with_single_blanks(self):
        self.assertEqual(
            postings("Assets:Petty cash", "A  1 EUR")[0], ("Assets:Petty cash", Decimal(-1), "EUR")
        )

    def test_it_does_not_leak_into_the_next_transaction(self):
        lines = ["2020-08-22 T", "  A  1 EUR", "  B", "2020-08-23 U", "  A  1 EUR", "  C  -2 EUR"]
        with self.assertRaises(JournalError) as caught:
            parse(lines)
        self.assertEqual(caught.exception.line, 4)

    def test_one_for_each_transaction(self):
        lines = ["2020-08-22 T", "  A  1 EUR", "  B", "", "2020-08-23 U", "  C", "  A  1 EUR"]
        self.assertEqual(report.balances(parse(lines))["C", "EUR"], -1)

    def refused(self, *lines):
        with self.assertRaises(JournalError) as caught:
            postings(*lines)
        return caught.exception

    def test_only_one(self):
        error = self.refused("A  1 EUR", "B", "C")
        self.assertEqual(error.line, 4)
        self.assertIn("only one amount can be left out", str(error))

    def test_amounts_that_cannot_be_read_are_no_accounts(self):
        for text in ["A  1,50 EUR", "A  1.50", "A 1.50 EUR", "A  EUR 1.50", "A  1.50 Euro"]:
            with self.subTest(text):
                error = self.refused("B  1 EUR", text)
                self.assertEqual(error.line, 3)
                self.assertIn("a posting is an account, an amount and a currency", str(error))

    def test_print(self):
        text = "alias k = Assets:Cash\n; note\n2020-08-22 Baker ; x\n  Food  4.20 EUR\n  k\n"
        text += "\n2020-08-23 Bank\n  k  10 EUR\n  Giro  -10 EUR\n"
        status, out, err = run(text, "print")
        self.assertEqual((status, err), (0, ""))
        self.assertEqual(
            [line.split() for line in out.splitlines()],
            [
                ["2020-08-22", "Baker"],
                ["Food", "4.20", "EUR"],
                ["Assets:Cash", "-4.20", "EUR"],
                [],
                ["2020-08-23", "Bank"],
                ["Assets:Cash", "10", "EUR"],
                ["Giro", "-10", "EUR"],
            ],
        )

    def test_what_is_printed_can_be_read(self):
        text = "2020-08-22 Baker\n  Expenses:Food:A long name of an account  4.205 EUR\n  Cash\n"
        first = run(text, "print")[1]
        self.assertEqual(run(first, "print")[1], first)
        self.assertEqual(run(first, "balance"), run(text, "balance"))


if __name__ == "__main__":
    unittest.main()
