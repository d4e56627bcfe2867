#include "ini.h"
#include "tap.h"

#include <stdlib.h>
#include <string.h>

/* So many of a letter. */
static char *letters(char letter, size_t count)
{
    char *text = malloc(count + 1);

    memset(text, letter, count);
    text[count] = '\0';
    return text;
}

/* Reads before, so many x, after; says whether section s has a key k with that value. */
static int has(const char *before, size_t count, const char *after, const char *value)
{
    char *middle = letters('x', count);
    char *expected = value ? strdup(value) : strdup(middle);
    FILE *file = tmpfile();
    struct ini *ini;
    const char *got;
    int line, same;

    fprintf(file, "%s%s%s", before, middle, after);
    rewind(file);
    ini = ini_read(file, &line);
    fclose(file);
    got = ini ? ini_get(ini, "s", "k") : NULL;
    same = got && !strcmp(got, expected);
    ini_free(ini);
    free(middle);
    free(expected);
    return same;
}

int main(void)
{
    size_t lengths[] = {240, 249, 250, 251, 252, 255, 256, 257, 511, 1021, 1024, 4096, 8191, 65536};
    size_t at, missing = 0;
    int line;
    FILE *file;
    struct ini *ini;

    for (at = 0; at < sizeof lengths / sizeof *lengths; at++)
        missing += !has("[s]\nk = ", lengths[at], "\n", NULL);
    ok(missing == 0, "long: values of many lengths");
    ok(has("[s]\nk = ", 1000000, "\n", NULL), "long: a value of a million characters");
    ok(has("[s]\nk = ", 1000000, "", NULL), "long: without an end of the line");
    ok(has("[s]\nk = \"", 70000, " # ; \"\n", NULL) == 0, "long: quotes keep what is in them");
    ok(has("; ", 3000, "\n[s]\nk = v\n", "v"), "long: a comment");
    ok(has("[s]\nk = v ; ", 70000, "\n", "v"), "long: a comment behind a value");
    ok(has("[s]\n", 5000, " = 1\nk = v\n", "v"), "long: a key");
    ok(has("[", 5000, "]\nk = w\n[s]\nk = v\n", "v"), "long: a section");
    ok(has("[s]\nk = ", 300, "=y\n", NULL) == 0, "long: the end of a value counts");

    file = tmpfile();
    for (at = 0; at < 2000; at++)
        fprintf(file, "; %0200zu\n%s", at, at % 2 ? "" : "a = 1\n");
    fprintf(file, "; %01000d\n\nno equals sign\n", 0);
    rewind(file);
    ini = ini_read(file, &line);
    ok(!ini && line == 3003, "long: lines are counted as they are");
    fclose(file);
    ini_free(ini);
    return finish();
}
