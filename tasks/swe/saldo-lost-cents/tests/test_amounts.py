import unittest

from saldo import JournalError, parse, report


def journal(*amounts, currency="EUR"):
    postings = ["  A:%d  %s %s" % (at, amount, currency) for at, amount in enumerate(amounts)]
    return parse(["2020-03-14 Test", *postings])


class AmountsTest(unittest.TestCase):
    def totals(self, transactions):
        return {
            account: line.split()[1]
            for (account, _), line in zip(
                sorted(report.balances(transactions)), report.balance(transactions)
            )
        }

    def test_a_large_sum_keeps_its_cents(self):
        shown = self.totals(journal("90071992547409.93", "0.10", "-90071992547410.03"))
        self.assertEqual(shown["A:0"], "90071992547409.93")
        self.assertEqual(shown["A:2"], "-90071992547410.03")

    def test_many_small_amounts(self):
        lines = []
        for _ in range(3000):
            lines += ["2020-03-14 Coffee", "  E  0.1 EUR", "  C  -0.1 EUR"]
        register = report.register(parse(lines), "E")
        self.assertEqual(register[-1].split()[-1], "300.00")
        amounts = report.balances(parse(lines))
        self.assertEqual(str(amounts["E", "EUR"]).rstrip("0").rstrip("."), "300")

    def test_what_balances_in_many_decimals_is_accepted(self):
        self.assertEqual(len(journal("0.00375", "0.00375", "-0.0075")), 1)
        big = "123456789012345678.01"
        self.assertEqual(len(journal(big, "0.01", "-123456789012345678.02")), 1)

    def test_a_tenth_of_a_cent_too_much_is_refused(self):
        with self.assertRaises(JournalError) as caught:
            journal("1.001", "-1")
        self.assertIn("0.001 EUR too much", str(caught.exception))

    def test_a_cent_of_a_large_sum_is_refused(self):
        with self.assertRaises(JournalError) as caught:
            journal("123456789012345678.01", "-123456789012345678.00")
        self.assertIn("0.01 EUR too much", str(caught.exception))

    def test_nothing_is_never_negative(self):
        shown = self.totals(journal("-0.004", "0.004"))
        self.assertEqual(shown["A:0"], "0.00")
        register = report.register(journal("-0.004", "0.004"), "A:0")
        self.assertEqual(register[0].split()[-1], "0.00")
        self.assertNotIn("-0.00", register[0])

    def test_half_a_cent_is_rounded_away_from_zero(self):
        shown = self.totals(journal("0.125", "-1.005", "0.88"))
        self.assertEqual(shown["A:0"], "0.13")
        self.assertEqual(shown["A:1"], "-1.01")

    def test_columns_stay_as_they_were(self):
        self.assertEqual(
            report.balance(journal("4.2", "-4.2"))[1],
            "  0                                    4.20 EUR",
        )


if __name__ == "__main__":
    unittest.main()
