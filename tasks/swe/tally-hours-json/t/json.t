use strict;
use warnings;
use Test::More;

use File::Temp 'tempdir';
use JSON::PP;

my $folder = tempdir(CLEANUP => 1);

# tally($log, @arguments): what the program prints; errors are in $errors
my $errors;

sub tally {
    my ($log, @arguments) = @_;
    open my $file, '>:raw', "$folder/access.log" or die $!;
    print $file $log;
    close $file;
    my $words = join ' ', map { quotemeta } $^X, 'bin/tally', @arguments, "$folder/access.log";
    my $out = `$words 2>\Q$folder\E/errors`;
    open $file, '<', "$folder/errors" or die $!;
    local $/;
    $errors = <$file>;
    return $out;
}

sub line {
    my ($time, $path, $agent, $bytes) = @_;
    return qq{h - - [$time] "GET $path HTTP/1.1" 200 $bytes "-" "$agent"\n};
}

sub rows {
    return [ map { decode_json($_) } split /\n/, $_[0] ];
}

my @times = (
    '01/Jan/2023:00:59:59 +0100', '31/Dec/2022:23:00:00 +0000', '31/Dec/2022:20:30:00 -0330',
    '01/Jan/2023:05:29:00 +0530', '01/Jan/2023:00:00:01 +0000', '31/Dec/2022:22:59:59 +0000',
);
my $log = join '', map { line($_, '/a', 'x', 7) } @times;
is tally($log, '--by=hour'), <<'END', 'json: hours, in the order of time';
       1            7 2022-12-31T22
       3           21 2022-12-31T23
       2           14 2023-01-01T00
END
is tally($log, '--by=hour', '--top=2'), <<'END', 'json: the first hours';
       1            7 2022-12-31T22
       3           21 2022-12-31T23
END
is tally(line('99/Jan/2023:00:00:00 +0000', '/a', 'x', 7), '--by=hour'),
  "       1            7 -\n", 'json: an hour that is none';

$log = join '', map { line($times[0], '/a', $_, 7) } 'two words', 'a', 'two words', '-';
is tally($log, '--by=agent'), <<'END', 'json: agents';
       2           14 two words
       1            7 -
       1            7 a
END
is tally(qq{h - - [$times[0]] "GET /a HTTP/1.1" 200 7\n}, '--by=agent'),
  "       1            7 -\n", 'json: no agent';

$log = join '', map { line($times[0], $_, 'x', 9) } '/b', '/a?q', '/a', '/c';
is_deeply rows(tally($log, '--json')),
  [
    { key => '/a', requests => 2, bytes => 18 },
    { key => '/b', requests => 1, bytes => 9 },
    { key => '/c', requests => 1, bytes => 9 },
  ],
  'json: the rows, in order';
is @{ rows(tally($log, '--json', '--top=1')) }, 1, 'json: the top';
is tally(line($times[0], '/a', 'x', 9), '--json'), qq({"bytes":9,"key":"/a","requests":1}\n),
  'json: numbers are numbers';
is tally(line($times[0], '/a', 'x', 9), '--json', '--by=status'),
  qq({"bytes":9,"key":"200","requests":1}\n), 'json: keys are texts';
is tally(line($times[0], '/a', 'x', 5_000_000_000), '--json'),
  qq({"bytes":5000000000,"key":"/a","requests":1}\n), 'json: many bytes';

my $odd = tally(line($times[0], '/a\"\\\\\x0a', 'x', 1), '--json');
is $odd =~ tr/\n//, 1, 'json: one line, whatever the key';
is_deeply rows($odd), [ { key => "/a\"\\\n", requests => 1, bytes => 1 } ], 'json: what JSON escapes';

is_deeply rows(tally(line($times[0], "/caf\xc3\xa9", 'x', 1), '--json')),
  [ { key => "/caf\x{e9}", requests => 1, bytes => 1 } ], 'json: UTF-8';
is_deeply rows(tally(line($times[0], '/caf\xe9', 'x', 1), '--json')),
  [ { key => "/caf\x{e9}", requests => 1, bytes => 1 } ], 'json: bytes that are no UTF-8';

is tally("what?\n", '--json'), '', 'json: no rows';
is $errors, "1 lines cannot be read\n", 'json: what cannot be read';
tally($log, '--json', '--by=hour');
is $errors, '', 'json: no warnings';

done_testing;
