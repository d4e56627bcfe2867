# The agent of agent_command.py in another language; JSON::PP comes with Perl (on Debian and Ubuntu
# with the package perl).
#
# pytest --intercode-env=sql --intercode-agent="command:perl examples/agent_command.pl"
use strict;
use warnings;
use JSON::PP;

$| = 1;    # a line is written at once

my %look = (bash => 'ls', ctf => 'ls', python => 'print(*dir())', mysql => 'SHOW TABLES');
$look{sqlite} = 'SELECT name FROM sqlite_master ORDER BY name';
my %read = (bash => 'cat %s', ctf => 'cat %s', python => 'help(%s)');
my ($task, $read);

while (my $line = <STDIN>) {
    my ($message, $answer) = decode_json($line);
    if ($message->{type} eq 'task') {
        $task = $message->{task};
        my $kind = $task->{engine} || $task->{env};
        $answer = { thought => 'What is there?', action => $look{$kind} };
    }
    else {    # your model goes here; this one reads something that the query names
        my @words = $message->{observation} =~ /[\w.-]+/g;
        my @named = grep { index($task->{query}, $_) >= 0 } @words;
        my ($longest) = sort { length $b <=> length $a } @named;
        my ($flag) = $message->{observation} =~ /(flag\{.*?\})/;
        $answer = { submit => $flag // '' };
        if (@named && !$read++) {
            $answer = { action => sprintf $read{ $task->{env} } // 'SELECT * FROM %s', $longest };
        }
    }
    print encode_json($answer), "\n";
    last if exists $answer->{submit};
}
