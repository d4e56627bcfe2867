use strict;
use warnings;
use Test::More;

use Cwd 'getcwd';
use File::Temp 'tempdir';

my $program = getcwd() . '/bin/tally-weekly';
my $line = 'h - - [10/Mar/2012:11:58:02 +0100] "GET %s HTTP/1.1" 200 7 "-" "-"' . "\n";
my $top = getcwd();

sub spew {
    my ($path, $text) = @_;
    open my $file, '>', $path or die "$path: $!";
    print $file $text;
    close $file;
}

# weekly($configuration, @paths): what is printed for requests of these paths, and the exit status
sub weekly {
    my ($configuration, @paths) = @_;
    my $folder = tempdir(CLEANUP => 1);
    spew("$folder/tally.conf.pl", $configuration) if defined $configuration;
    spew("$folder/access.log", join '', map { sprintf $line, $_ } @paths);
    chdir $folder or die $!;
    my $out = `\Q$^X\E \Q$program\E access.log 2>&1`;
    my $status = $? >> 8;
    chdir $top or die $!;
    return ($out, $status);
}

my $configuration = <<'END';
@sections = (
    { title => 'Articles', match => '/article/{id}' },
    { title => 'Home',     match => '/' },
    { title => 'Comments', match => '/article/{id}/comments/{number}' },
    { title => 'Unused',   match => '/unused' },
    { title => 'Prices',   match => '/price.list' },
    { title => 'About',    match => '/about' },
);
$width = 12;
END
my @paths = qw(/about /article/7 /article/8?x=1 /article/ /article/7/comments/2 / / /price.list
  /price-list /article/7/8 /about /xarticle/7);
my ($out, $status) = weekly($configuration, @paths);
is $status, 0, 'weekly: the status';
is $out, <<'END', 'weekly: the report, in the order of the sections';
Articles            2
Home                2
Comments            1
Prices              1
About               2
END

# hashes have another order in every process
my %seen;
$seen{ (weekly($configuration, @paths))[0] }++ for 1 .. 5;
is keys %seen, 1, 'weekly: the same each time';

($out) = weekly("\@sections = ({ title => 'Home', match => '/' });\n", '/');
is $out, sprintf("%-40s %8d\n", 'Home', 1), 'weekly: the usual width';

($out) = weekly(<<'END', qw(/a /b /c));
@sections = (
    { title => 'Letters', match => '/c' },
    { title => 'Others',  match => '/b' },
    { title => 'Letters', match => '/a' },
);
$width = 10;
END
is $out, "Letters           2\nOthers            1\n", 'weekly: two sections of one title';

($out, $status) = weekly(undef, '/');
is $out, "tally-weekly: tally.conf.pl cannot be read\n", 'weekly: no configuration';
isnt $status, 0, 'weekly: no configuration is a mistake';
($out, $status) = weekly("\@sections = ();\n1;\n", '/');
is $out, "tally-weekly: there are no sections\n", 'weekly: no sections';
isnt $status, 0, 'weekly: no sections is a mistake';
($out) = weekly("\@sections = (\n", '/');
is $out, "tally-weekly: tally.conf.pl cannot be read\n", 'weekly: a configuration with a mistake in it';

($out, $status) = weekly($configuration);
is "$status $out", '0 ', 'weekly: an empty log';

done_testing;
