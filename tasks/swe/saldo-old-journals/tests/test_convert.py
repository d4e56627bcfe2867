import unittest
from decimal import Decimal

from saldo import parse
from tests.test_main import run

OLD = """\
# household, from the macro
31.12.2018 Bäckerei Ott   # closed since
  EUR 4,20 Expenses:Food
  EUR -4,20 Assets:Cash

1.2.2019 Car; second hand
\tEUR 12.500,00 Assets:Car    # with winter tyres
\tEUR -12.500,00   Assets:Bank:Giro
   # not mine
  HUF 1.234.567 Assets:Petty   cash
  HUF -1234567 Assets:Exchange
#end
"""


class ConvertTest(unittest.TestCase):
    def converted(self, text=OLD):
        status, out, err = run(text, "convert")
        self.assertEqual((status, err), (0, ""))
        return out

    def test_it_can_be_read(self):
        first, second = parse(self.converted().splitlines())
        self.assertEqual((str(first.date), first.payee), ("2018-12-31", "Bäckerei Ott"))
        self.assertEqual(str(second.date), "2019-02-01")
        self.assertEqual(
            [tuple(p) for p in first.postings],
            [("Expenses:Food", Decimal("4.20"), "EUR"), ("Assets:Cash", Decimal("-4.20"), "EUR")],
        )

    def test_thousands(self):
        second = parse(self.converted().splitlines())[1]
        self.assertEqual(
            [(p.account, p.amount) for p in second.postings],
            [
                ("Assets:Car", Decimal("12500.00")),
                ("Assets:Bank:Giro", Decimal("-12500.00")),
                ("Assets:Petty cash", Decimal("1234567")),
                ("Assets:Exchange", Decimal("-1234567")),
            ],
        )

    def test_a_line_stays_a_line(self):
        lines = self.converted().splitlines()
        self.assertEqual(len(lines), len(OLD.splitlines()))
        self.assertEqual(lines[4], "")
        self.assertEqual([t.line for t in parse(lines)], [2, 6])

    def test_comments_stay(self):
        lines = self.converted().splitlines()
        self.assertEqual(lines[0], "; household, from the macro")
        self.assertTrue(lines[1].endswith("; closed since"), lines[1])
        self.assertTrue(lines[6].endswith("; with winter tyres"), lines[6])
        self.assertEqual(lines[8].strip(), "; not mine")
        self.assertEqual(lines[11], ";end")

    def test_what_was_text_becomes_no_comment(self):
        second = parse(self.converted().splitlines())[1]
        self.assertEqual(second.payee, "Car, second hand")

    def test_balances_are_the_same(self):
        out = self.converted()
        status, shown, _ = run(out, "balance")
        self.assertEqual(status, 0)
        self.assertIn("1234567.00 HUF", shown)

    def check(self, text, message):
        self.assertEqual(run(text, "convert"), (1, "", "saldo: FILE: line %s\n" % message))

    def test_mistakes(self):
        posting = "a posting is a currency, an amount and an account"
        self.check("31.2.2019 A\n", "1: there is no such day")
        self.check("2019-02-01 A\n", "1: a transaction begins with a date and a payee")
        self.check("1.2.2019 A\n  EUR 1.50 X\n", "2: " + posting)
        self.check("1.2.2019 A\n  EUR 12.34,5 X\n", "2: " + posting)
        self.check("1.2.2019 A\n  EUR 1,2,3 X\n", "2: " + posting)
        self.check("1.2.2019 A\n  EUR 1\n", "2: " + posting)

    def test_what_does_not_add_up_is_not_converted(self):
        self.check("#\n1.2.2019 A\n  EUR 1 X\n  EUR -0,90 Y\n", "2: 0.10 EUR too much")


if __name__ == "__main__":
    unittest.main()
