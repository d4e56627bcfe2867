use strict;
use warnings;
use Test::More;

use Tally::Sums;
use Tally::Time;

# off($text, $seconds): by how much the time is off
sub off {
    my ($text, $seconds) = @_;
    my $got = Tally::Time::seconds($text);
    return defined $got ? $got - $seconds : 'no time';
}

my $noon = 1368187200;    # 10 May 2013, 12:00:00 UTC
is off('10/May/2013:12:00:00 +0000', $noon), 0, 'offsets: UTC';
is off('10/May/2013:09:30:00 -0230', $noon), 0, "offsets: St. John's in summer";
is off('10/May/2013:08:30:00 -0330', $noon), 0, "offsets: St. John's in winter";
is off('10/May/2013:17:30:00 +0530', $noon), 0, 'offsets: Delhi';
is off('10/May/2013:17:45:00 +0545', $noon), 0, 'offsets: Kathmandu';
is off('10/May/2013:02:30:00 -0930', $noon), 0, 'offsets: the Marquesas';
is off('11/May/2013:01:00:00 +1300', $noon), 0, 'offsets: Tonga, tomorrow';
is off('10/May/2013:01:00:00 -1100', $noon), 0, 'offsets: Samoa';
is off('10/May/2013:11:30:00 -0030', $noon), 0, 'offsets: less than an hour behind';
is off('10/May/2013:12:30:00 +0030', $noon), 0, 'offsets: less than an hour ahead';

# the same minute with one offset after another, as in a log that was merged
is off('10/May/2013:12:00:05 +0000', $noon + 5),    0, 'offsets: a minute in UTC';
is off('10/May/2013:12:00:06 +0200', $noon - 7194), 0, 'offsets: the same minute two hours ahead';
is off('10/May/2013:12:00:07 -0230', $noon + 9007), 0, 'offsets: the same minute behind';
is off('10/May/2013:12:00:08 +0000', $noon + 8),    0, 'offsets: the same minute in UTC again';

for my $text ('31/Feb/2013:12:00:00 +0000', '10/Foo/2013:12:00:00 +0000', '10/May/2013:24:00:00 +0000',
    '10/May/2013:12:60:00 +0000', '10/May/2013:12:00:00', '10/May/2013:12:00:00 0100',
    '10/May/2013 12:00:00 +0000')
{
    is Tally::Time::seconds($text), undef, "offsets: $text is no time";
}

# a mistake must not be remembered for the next
is off('10/May/2013:12:01:00 +0000', $noon + 60), 0, 'offsets: a time after mistakes';

my $sums = Tally::Sums->new(by => 'path', since => $noon);
my $line = qq{h - - [%s] "GET /%s HTTP/1.1" 200 1 "-" "-"\n};
$sums->add(sprintf $line, @$_)
  for [ '10/May/2013:09:29:59 -0230', 'before' ], [ '10/May/2013:09:30:00 -0230', 'then' ],
  [ '10/May/2013:17:29:59 +0530', 'before' ], [ '10/May/2013:17:30:00 +0530', 'then' ];
is_deeply [ $sums->rows ], [ [ '/then', 2, 2 ] ], 'offsets: --since';

# asked for often, mostly for the same minutes
my $before = times;
for my $at (1 .. 60000) {
    Tally::Time::seconds(sprintf '10/May/2013:12:%02d:%02d -0230', $at / 1000, $at % 60);
}
cmp_ok times() - $before, '<', 1.5, 'offsets: it is quick';

done_testing;
