#include "ini.h"
#include "tap.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SECTIONS = 40, KEYS = 4000 };

/* Runs a function in a process that may use 2 s of processor time; says whether it returned 0. */
static int in_time(int (*run)(void))
{
    struct rlimit limit = {2, 3};
    int status;
    pid_t child = fork();

    if (child == 0) {
        struct rlimit none = {0, 0};

        setrlimit(RLIMIT_CORE, &none);
        setrlimit(RLIMIT_CPU, &limit);
        _exit(run());
    }
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
           WEXITSTATUS(status) == 0;
}

static FILE *large_file(void)
{
    FILE *file = tmpfile();
    int section, key;

    for (section = 0; section < SECTIONS; section++) {
        fprintf(file, "[section %d]\n", section);
        for (key = 0; key < KEYS; key++)
            fprintf(file, "key-%d = %d\n", key, section * KEYS + key);
    }
    rewind(file);
    return file;
}

struct seen {
    int next, wrong;
};

static void look(const char *section, const char *key, const char *value, void *with)
{
    struct seen *seen = with;
    char expected[32];

    (void)key;
    snprintf(expected, sizeof expected, "section %d", seen->next / KEYS);
    if (strcmp(section, expected) || atoi(value) != seen->next)
        seen->wrong++;
    seen->next++;
}

static int read_and_visit(void)
{
    struct seen seen = {0, 0};
    FILE *file = large_file();
    struct ini *ini;
    int line;

    ini = ini_read(file, &line);
    if (!ini)
        return 1;
    ini_each(ini, look, &seen);
    ini_free(ini);
    return seen.wrong || seen.next != SECTIONS * KEYS;
}

static int read_and_get(void)
{
    FILE *file = large_file();
    char section[32], key[32];
    struct ini *ini;
    const char *value;
    int line, at;

    ini = ini_read(file, &line);
    for (at = SECTIONS * KEYS - 1; at >= 0; at--) {
        snprintf(section, sizeof section, "section %d", at / KEYS);
        snprintf(key, sizeof key, "key-%d", at % KEYS);
        value = ini_get(ini, section, key);
        if (!value || atoi(value) != at || ini_get(ini, key, section))
            return 1;
    }
    ini_free(ini);
    return 0;
}

static int set_again(void)
{
    FILE *empty = tmpfile();
    struct seen seen = {0, 0};
    char section[32], key[32], value[32];
    struct ini *ini;
    int line, round, at;

    ini = ini_read(empty, &line);
    for (round = 0; round < 2; round++)
        for (at = 0; at < SECTIONS * KEYS; at++) {
            snprintf(section, sizeof section, "section %d", at / KEYS);
            snprintf(key, sizeof key, "key-%d", at);
            snprintf(value, sizeof value, "%d", round ? at : -1);
            if (ini_set(ini, section, key, value))
                return 1;
        }
    ini_each(ini, look, &seen);
    ini_free(ini);
    return seen.wrong || seen.next != SECTIONS * KEYS;
}

static char order[64];

static void note(const char *section, const char *key, const char *value, void *with)
{
    (void)with;
    snprintf(order + strlen(order), sizeof order - strlen(order), "%s/%s=%s ", section, key, value);
}

int main(void)
{
    struct ini *ini;
    FILE *file = tmpfile();
    int line;

    ok(in_time(read_and_visit), "many: a large file is read, and visited in order");
    ok(in_time(read_and_get), "many: all of its keys are found");
    ok(in_time(set_again), "many: keys are set, and set again");

    fprintf(file, "[a]\nbc = 1\n[ab]\nc = 2\n[a]\nb = 3\nbc = 4\n[]\nabc = 5\n");
    rewind(file);
    ini = ini_read(file, &line);
    ini_each(ini, note, NULL);
    ok(!strcmp(order, "a/bc=4 ab/c=2 a/b=3 /abc=5 "), "many: the order is that of first appearance");
    ok(!ini_get(ini, "", "bc") && !ini_get(ini, "ab", "bc"), "many: section and key are two things");
    ini_free(ini);
    return finish();
}
