# Runs the actions that come on descriptor 4, each up to a NUL byte; tells their status on 3.
use IO::Handle;
open my $in, '<&=', 4 or die; open my $out, '>&=', 3 or die; $| = 1; my ($read, $self) = ('', $$);
sub Repl::next {
    while ($read !~ /\0/) { sysread $in, $read, 65536, length $read or exit }
    (my $action, $read) = split /\0/, $read, 2;
    return "package main;\n#line 1 \"action\"\n$action$Repl::on";
}
sub Repl::tell {
    my $failed = $@ ne ''; print STDERR $@ if $failed;
    exit if $$ != $self;    # a child that the action forked
    STDOUT->flush; syswrite $out, $failed ? "1\n" : "0\n";
}
# An action is evaluated inside the one before it, where it sees that one's `my` variables.
$Repl::on = "\n;\$@ = ''; Repl::tell(); while (1) { { eval Repl::next() } Repl::tell() }";
while (1) { { eval Repl::next() } Repl::tell() }
