import threading
import unittest

from saldo import JournalError, parse

ALIAS = ["alias giro = Assets:Bank:Giro", "2020-05-01 A", "  giro  1 EUR", "  B  -1 EUR"]
PLAIN = ["2020-05-02 B", "  giro  2 EUR", "  C  -2 EUR"]
SHOP = ["alias giro = Assets:Shop:Giro"]


class IndependenceTest(unittest.TestCase):
    def accounts(self, transactions):
        return [p.account for t in transactions for p in t.postings]

    def test_aliases_end_with_their_journal(self):
        self.assertEqual(self.accounts(parse(ALIAS)), ["Assets:Bank:Giro", "B"])
        self.assertEqual(self.accounts(parse(PLAIN)), ["giro", "C"])

    def test_an_alias_holds_from_its_line_on(self):
        lines = PLAIN + [""] + ALIAS
        self.assertEqual(self.accounts(parse(lines)), ["giro", "C", "Assets:Bank:Giro", "B"])

    def test_a_mistake_leaves_nothing_behind(self):
        with self.assertRaises(JournalError):
            parse(["alias giro = Wrong", "2020-05-01 A", "  X  1 EUR", "oops"])
        self.assertEqual(self.accounts(parse(PLAIN)), ["giro", "C"])

    def test_one_journal_read_while_another_is(self):
        inner = []

        def lines():
            yield from ALIAS[:3]
            inner.extend(parse(SHOP + PLAIN))
            yield ALIAS[3]

        outer = parse(lines())
        self.assertEqual(self.accounts(outer), ["Assets:Bank:Giro", "B"])
        self.assertEqual(self.accounts(inner), ["Assets:Shop:Giro", "C"])
        self.assertEqual([t.line for t in outer], [2])

    def test_two_parsers_fed_in_turns(self):
        from saldo.parser import Parser

        one, two = Parser(), Parser()
        two.feed("; a line more")
        for left, right in zip(ALIAS, SHOP + PLAIN):
            one.feed(left)
            two.feed(right)
        first, second = one.finish(), two.finish()
        self.assertEqual(self.accounts(first), ["Assets:Bank:Giro", "B"])
        self.assertEqual(self.accounts(second), ["Assets:Shop:Giro", "C"])
        self.assertEqual((first[0].line, second[0].line), (2, 3))

    def test_a_parser_knows_the_line_of_a_mistake(self):
        from saldo.parser import Parser

        parser = Parser()
        parser.feed("\n")
        parser.feed("2020-05-01 A\n")
        with self.assertRaises(JournalError) as caught:
            parser.feed("  X  1,50 EUR\n")
        self.assertEqual(caught.exception.line, 3)

    def test_what_is_unbalanced_at_the_end_is_found_by_finish(self):
        from saldo.parser import Parser

        parser = Parser()
        for line in ["2020-05-01 A", "  X  1 EUR"]:
            parser.feed(line)
        with self.assertRaises(JournalError) as caught:
            parser.finish()
        self.assertEqual(caught.exception.line, 1)

    def test_threads(self):
        wrong = []

        def read(name):
            lines = ["alias a = %s" % name, "2020-05-01 A"]
            lines += ["  a  1 EUR", "  B  -1 EUR"] * 200
            for _ in range(5):
                if set(self.accounts(parse(lines))) != {name, "B"}:
                    wrong.append(name)

        threads = [threading.Thread(target=read, args=("N%d" % n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])


if __name__ == "__main__":
    unittest.main()
