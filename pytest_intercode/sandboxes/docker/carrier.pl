# Carries the connections to 127.0.0.1:PORT of a sandbox over its stdin and stdout; the other end is
# carrier.py, which says what the frames are: perl carrier.pl PORT WINDOW MAX_CONNECTIONS.
# Core modules of perl-base alone, which Debian's and Ubuntu's images have.
use strict;
use IO::Socket::INET;
use Errno qw(EAGAIN EINTR EWOULDBLOCK);
use Socket qw(IPPROTO_TCP TCP_NODELAY SHUT_WR);

my ($port, $window, $most) = @ARGV;
my $server = IO::Socket::INET->new(
    LocalAddr => '127.0.0.1', LocalPort => $port, Listen => 64, ReuseAddr => 1
) or die "127.0.0.1:$port: $@\n";
$server->blocking(0);
$SIG{PIPE} = 'IGNORE';

my (%connections, $last);
my $input = '';

sub tell_other_end { # The other end reads at any time, so this waits for nothing for long.
    my ($kind, $number, $count, $data) = @_;
    my $frame = pack('aNN', $kind, $number, $count) . ($data // '');
    for (my $sent = 0; $sent < length $frame;) {
        my $part = syswrite STDOUT, $frame, length($frame) - $sent, $sent;
        $sent += $part // ($!{EINTR} ? 0 : exit);
    }
}

sub forget {
    my ($number) = @_;
    my $connection = delete $connections{$number} or return;
    close $connection->{socket};
}

sub lose { tell_other_end('C', $_[0], 0); forget($_[0]) }

sub finish { # Ends what has no more to say, or all of it once neither side has.
    my ($number) = @_;
    my $connection = $connections{$number};
    if ($connection->{is_answered} && !$connection->{is_shut} && $connection->{output} eq '') {
        shutdown $connection->{socket}, SHUT_WR;
        $connection->{is_shut} = 1;
    }
    forget($number) if $connection->{is_shut} && $connection->{is_read};
}

sub accept_one {
    my $socket = $server->accept or return;
    $socket->blocking(0);
    setsockopt $socket, IPPROTO_TCP, TCP_NODELAY, 1; # answers come in small pieces, and at once
    $connections{++$last} = { socket => $socket, credit => $window, output => '' };
    tell_other_end('O', $last, 0);
}

sub read_some {
    my ($number) = @_;
    my $connection = $connections{$number};
    my $limit = $connection->{credit} < 32768 ? $connection->{credit} : 32768;
    my $count = sysread $connection->{socket}, my $data, $limit;
    if ($count) {
        $connection->{credit} -= $count;
        tell_other_end('D', $number, $count, $data);
    } elsif (defined $count) {
        $connection->{is_read} = 1;
        tell_other_end('E', $number, 0);
        finish($number);
    } elsif (!($!{EAGAIN} || $!{EWOULDBLOCK} || $!{EINTR})) {
        lose($number);
    }
}

sub write_some {
    my ($number) = @_;
    my $connection = $connections{$number};
    my $count = syswrite $connection->{socket}, $connection->{output};
    if (defined $count) {
        substr $connection->{output}, 0, $count, '';
        tell_other_end('A', $number, $count);
        finish($number);
    } elsif (!($!{EAGAIN} || $!{EWOULDBLOCK} || $!{EINTR})) {
        lose($number);
    }
}

sub read_frames {
    my $count = sysread STDIN, $input, 65536, length $input;
    exit unless $count || (!defined $count && $!{EINTR});
    while (length $input >= 9) {
        my ($kind, $number, $size) = unpack 'aNN', $input;
        my $end = 9 + ($kind eq 'D' ? $size : 0);
        last if length $input < $end;
        exit if $kind eq 'Q';
        my $connection = $connections{$number};
        if (!$connection) { # it was lost a moment ago
        } elsif ($kind eq 'D') {
            $connection->{output} .= substr $input, 9, $size;
        } elsif ($kind eq 'E') {
            $connection->{is_answered} = 1;
            finish($number);
        } elsif ($kind eq 'A') {
            $connection->{credit} += $size;
        } else {
            forget($number);
        }
        substr $input, 0, $end, '';
    }
}

tell_other_end('L', 0, 0);
while (1) {
    my ($readable, $writable) = ('', '');
    vec($readable, fileno STDIN, 1) = 1;
    vec($readable, fileno $server, 1) = 1 if keys %connections < $most;
    for my $connection (values %connections) {
        my $file = fileno $connection->{socket};
        vec($readable, $file, 1) = 1 if $connection->{credit} > 0 && !$connection->{is_read};
        vec($writable, $file, 1) = 1 if $connection->{output} ne '';
    }
    next if select($readable, $writable, undef, undef) < 0;
    for my $number (keys %connections) {
        my $file = fileno $connections{$number}{socket};
        write_some($number) if vec $writable, $file, 1;
        read_some($number) if $connections{$number} && vec $readable, $file, 1;
    }
    accept_one() if vec $readable, fileno $server, 1;
    read_frames() if vec $readable, fileno STDIN, 1;
}
