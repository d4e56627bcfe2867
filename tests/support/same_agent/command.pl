# The agent of forms.py as a program in another language.
use strict;
use warnings;
use JSON::PP;

$| = 1;
my $left;
while (my $line = <STDIN>) {
    my $message = decode_json($line);
    if ($message->{type} eq 'task') {
        open my $file, '<', $ENV{PLAN} or die $!;
        local $/;
        $left = decode_json(<$file>)->{ $message->{task}{id} };
    }
    last if $message->{type} eq 'end';
    print encode_json({ action => shift @$left }), "\n";
}
