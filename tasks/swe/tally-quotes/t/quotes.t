use strict;
use warnings;
use Test::More;

use Tally::Line;
use Tally::Sums;

# part($request, $from, $agent): the parts of a line
sub part {
    return Tally::Line::parse(
        sprintf qq{192.0.2.7 - - [22/Sep/2012:09:00:00 +0200] "%s" 200 5 "%s" "%s"\n}, @_);
}

my $part = part('GET /a HTTP/1.1', '-', 'A \"quoted\" browser');
ok $part, 'quotes: in an agent';
is $part->{agent}, 'A "quoted" browser', 'quotes: the agent as it was sent';
is $part->{path}, '/a', 'quotes: the path in front of it';

$part = part('GET /say?\"hello\" HTTP/1.1', '-', '-');
is $part->{path}, '/say?"hello"', 'quotes: in a path';
is $part->{protocol}, 'HTTP/1.1', 'quotes: the protocol behind it';
is $part->{status}, 200, 'quotes: the status behind it';

$part = part('GET /a HTTP/1.1', '-', 'ends in a backslash \\\\');
is $part->{agent}, 'ends in a backslash \\', 'quotes: a backslash in front of the last quote';

$part = part('GET /a\\\\ HTTP/1.1', 'from \\\\\"there\"', 'x');
is $part->{path}, '/a\\', 'quotes: a backslash at the end of a path';
is $part->{from}, 'from \\"there"', 'quotes: a backslash and a quote';
is $part->{agent}, 'x', 'quotes: what is behind them';

$part = part('GET /caf\xc3\xa9 HTTP/1.1', '-', 'a\x22b');
is $part->{path}, "/caf\xc3\xa9", 'quotes: bytes written as numbers';
is $part->{agent}, 'a"b', 'quotes: a quote written as a number';

$part = part('GET /a HTTP/1.1', '\\\\x41', '\\\\\\\\');
is $part->{from}, '\\x41', 'quotes: a backslash in front of what looks like a number';
is $part->{agent}, '\\\\', 'quotes: two backslashes';

is part('GET /a HTTP/1.1', '-', 'one quote " too many'), undef, 'quotes: not escaped';
is part('GET /a HTTP/1.1', '-', 'no end \\'), undef, 'quotes: no end';

my $long = part('GET /a HTTP/1.1', '-', 'x\"' x 20000);
is length($long ? $long->{agent} : ''), 40000, 'quotes: a long text';

my $sums = Tally::Sums->new(by => 'path');
$sums->add(qq{h - - [22/Sep/2012:09:00:00 +0200] "GET /$_ HTTP/1.1" 200 1 "-" "\\"x\\""\n}) for qw(b a b);
is_deeply [ $sums->rows ], [ [ '/b', 2, 2 ], [ '/a', 1, 1 ] ], 'quotes: sums have such lines';
is $sums->{unread}, 0, 'quotes: all lines are read';

done_testing;
