# Leads 127.0.0.1:PORT of a sandbox to a Unix socket: perl forward.pl PORT SOCKET.
# It listens, prints the number of its process, and goes on in the background. Core modules of
# perl-base alone, which Debian's and Ubuntu's images have.
use strict;
use IO::Socket::INET;
use IO::Socket::UNIX;
use IO::Select;

my ($port, $path) = @ARGV;
my $server = IO::Socket::INET->new(
    LocalAddr => '127.0.0.1', LocalPort => $port, Listen => 64, ReuseAddr => 1
) or die "127.0.0.1:$port: $@\n";
my $child = fork // die "fork: $!\n";
if ($child) { print "$child\n"; exit }
open STDIN, '<', '/dev/null'; open STDOUT, '>', '/dev/null'; open STDERR, '>', '/dev/null';
$SIG{PIPE} = 'IGNORE';
my $ready = IO::Select->new($server);
my %other;    # of each connection
while (my @readable = $ready->can_read) {
    for my $from (@readable) {
        if ($from == $server) {
            my $client = $server->accept or next;
            my $gateway = IO::Socket::UNIX->new(Peer => $path) or next;
            @other{$client, $gateway} = ($gateway, $client);
            $ready->add($client, $gateway);
            next;
        }
        my $to = $other{$from} or next;
        my $count = sysread $from, my $data, 65536;
        my $sent = 0;
        while ($count && $sent < $count) {
            my $part = syswrite $to, $data, $count - $sent, $sent;
            last unless defined $part;
            $sent += $part;
        }
        next if $count && $sent == $count;
        $ready->remove($from, $to);
        delete @other{$from, $to};
        close $from; close $to;
    }
}
