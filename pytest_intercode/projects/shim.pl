#!/usr/bin/perl
# A shim: stands first on PATH for a program, and reports how it is called (shims.py). A fake is
# answered by the test's process; a watched program, or a script in its place, is run from here.
#
# It uses no module, not even Socket or Errno, whose loading takes longer than all else: the numbers
# below are Linux's. What it asks is one message: fields, each after its length (four bytes,
# big-endian), up to the end of the stream. So is the answer.
use strict;

my ($kind, $program, $reads_input) = ('KIND', 'PROGRAM', 'READS_INPUT'); # written by shims.py
my $address = '/opt/intercode/shims.address';
my $folder = '/opt/intercode/shims';
my $max_bytes = 262144;     # of the arguments, and of the input, that are reported
my $ask_timeout = 60;       # seconds, for a program that runs whether anybody answers or not
my ($ENOENT, $EINTR) = (2, 4);
my ($AF_UNIX, $AF_INET, $SOCK_STREAM, $SHUT_WR) = (1, 2, 1, 1);
my $PR_SET_PDEATHSIG = 1;
# The number of the call `prctl`, by the machine of a program, as the head of its file says.
my %prctl = (3 => 172, 21 => 171, 22 => 172, 40 => 172, 62 => 157, 183 => 167, 243 => 167);

sub ask { # Returns the fields of the answer, of which there are three; none where nobody answers.
    open my $file, '<', $address or return;
    my ($family, $place, $secret) = split ' ', scalar <$file>;
    my $is_unix = $family eq 'unix';
    local $SIG{PIPE} = 'IGNORE';
    socket my $socket, $is_unix ? $AF_UNIX : $AF_INET, $SOCK_STREAM, 0 or return;
    connect $socket, $is_unix
        ? pack('S a108', $AF_UNIX, $place)
        : pack('S n C4 x8', $AF_INET, $place, 127, 0, 0, 1)
        or return;
    write_all($socket, pack '(N/a*)*', $secret, @_) or return;
    shutdown $socket, $SHUT_WR;
    my $answer = '';
    while (1) {
        my $count = sysread $socket, $answer, 65536, length $answer;
        next if !defined $count && $! == $EINTR;
        return unless defined $count;
        last unless $count;
    }
    my @fields = eval { unpack '(N/a*)*', $answer };
    return @fields == 3 ? @fields : ();
}

sub write_all {
    my ($file, $data) = @_;
    for (my $sent = 0; $sent < length $data;) {
        my $count = syswrite $file, $data, length($data) - $sent, $sent;
        next if !defined $count && $! == $EINTR;
        return unless defined $count;
        $sent += $count;
    }
    return 1;
}

sub fail {
    my ($status, $reason) = @_;
    write_all(\*STDERR, "$program: $reason\n");
    exit $status;
}

my $excess = ''; # of what there was more than is reported

sub read_input { # Reads to the end, as the program would, and keeps the beginning.
    my ($input, $data) = ('', '');
    while (1) {
        my $count = sysread STDIN, $data, 65536;
        next if !defined $count && $! == $EINTR;
        last unless $count;
        $input .= $data if length $input <= $max_bytes;
    }
    return $input if length $input <= $max_bytes;
    $excess ||= 'input';
    return substr $input, 0, $max_bytes;
}

my $room = $max_bytes;
my @arguments = grep { ($room -= 4 + length) >= 0 } @ARGV;
if (@arguments < @ARGV) {
    $excess = 'arguments';
    $room = $max_bytes; # those at the beginning alone, in their order
    @arguments = ();
    for (@ARGV) {
        last if ($room -= 4 + length) < 0;
        push @arguments, $_;
    }
}
my $directory = readlink '/proc/self/cwd';

if ($kind eq 'check') { # whether shims work in this sandbox; nothing of an agent's runs it
    ask('check') or fail(1, 'nobody answers at its socket');
    exit;
}

if ($kind eq 'fake') {
    my $wants = $reads_input eq 'always'
        || $reads_input eq 'words' && grep { /(?:^|[=\@])-\z/ } @arguments;
    my $input = $wants ? read_input() : '';
    my ($status, $stdout, $stderr)
        = ask('call', $program, $directory, $excess, $input, @arguments)
        or fail(1, 'the test that answers in its place cannot be reached');
    write_all(\*STDOUT, $stdout);
    write_all(\*STDERR, $stderr);
    exit $status;
}

sub find_program { # The first on PATH that is not a shim.
    return "$folder/scripts/$program" if $kind eq 'script';
    my @own = stat "$folder/bin/$program";
    for my $place (split /:/, $ENV{PATH} // '/usr/local/bin:/usr/bin:/bin', -1) {
        my $path = ($place eq '' ? '.' : $place) . "/$program";
        my @other = stat $path or next;
        next if $other[0] == $own[0] && $other[1] == $own[1];
        return $path if -f _ && -x _;
    }
    return;
}

sub ask_in_time {
    my @fields = @_;
    my @answer = eval {
        local $SIG{ALRM} = sub { die "nobody answers\n" };
        alarm $ask_timeout;
        my @answer = ask(@fields);
        alarm 0;
        @answer;
    };
    alarm 0;
    return @answer;
}

my $path = find_program();
my ($verb, $first, $second)
    = ask_in_time('call', $program, $directory, $excess, '', @arguments);
if (defined $verb && $verb ne 'run') { # a script's call that was one too many
    write_all(\*STDERR, $second);
    exit $verb;
}
fail(1, 'the test that answers in its place cannot be reached') if $kind eq 'script' && !$verb;
my $call = $verb ? $first : ''; # its number, for the report of its end

sub report_end {
    ask_in_time('end', $call, $_[0]) if $call ne '';
}

if (!defined $path) {
    report_end(127);
    fail(127, 'command not found');
}

# The program has the path that was found as its name: some look for their files next to it.
sub run_program {
    exec { $path } $path, @ARGV;
    my $status = $! == $ENOENT ? 127 : 126;
    write_all(\*STDERR, "$path: $!\n");
    exit $status;
}

my $shim = $$;
my $child = $call eq '' ? undef : fork;
run_program() unless defined $child; # nothing to report, or no room for another process
if (!$child) {
    # Whoever kills the shim means the program.
    if (open my $file, '<', '/proc/self/exe') {
        sysread $file, my $head, 20;
        my $number = $prctl{unpack 'x18 S', $head};
        syscall $number, $PR_SET_PDEATHSIG, 9 if $number;
    }
    exit 137 if getppid != $shim;
    run_program();
}

# What is sent to the shim is for the program. It may get it twice, where it was sent to both.
my @forwarded = grep { ($SIG{$_} // '') ne 'IGNORE' } qw(HUP INT QUIT TERM USR1 USR2);
for my $name (@forwarded) {
    $SIG{$name} = sub { kill $name, $child };
}
waitpid $child, 0;
my ($signal, $status) = ($? & 127, $? >> 8);
$SIG{$_} = 'DEFAULT' for @forwarded;
report_end($signal ? 128 + $signal : $status);
if ($signal) { # end as the program did
    kill $signal, $$;
    exit 128 + $signal;
}
exit $status;
