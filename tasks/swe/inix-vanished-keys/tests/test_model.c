#include "ini.h"
#include "tap.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { KEYS = 300 };

static uint32_t state = 12345;

static unsigned chance(unsigned limit)
{
    state = state * 1664525 + 1013904223;
    return (state >> 8) % limit;
}

static struct ini *empty(void)
{
    FILE *file = tmpfile();
    int line;
    struct ini *ini = ini_read(file, &line);

    fclose(file);
    return ini;
}

/* What the library should hold: the value of each key (-1: none), and since when it is there. */
static int value[KEYS];
static int since[KEYS];
static int now;

static void name(int key, char *section, char *text)
{
    sprintf(section, "s%d", key % 3);
    sprintf(text, "k%d", key);
}

static int as_expected(struct ini *ini, int key)
{
    char section[16], text[16], expected[16];
    const char *got;

    name(key, section, text);
    got = ini_get(ini, section, text);
    if (value[key] < 0)
        return got == NULL;
    sprintf(expected, "%d", value[key]);
    return got && !strcmp(got, expected);
}

struct visit {
    int last, seen, wrong;
};

static void look(const char *section, const char *text, const char *shown, void *with)
{
    struct visit *visit = with;
    int key = atoi(text + 1);

    if (atoi(section + 1) != key % 3 || atoi(shown) != value[key] || since[key] <= visit->last)
        visit->wrong++;
    visit->last = since[key];
    visit->seen++;
}

/* So many changes at random among so many keys; how often something was not as expected. */
static int play(int changes, int keys)
{
    struct ini *ini = empty();
    char section[16], text[16], number[16];
    int at, key, wrong = 0, there = 0;
    struct visit visit = {0, 0, 0};

    for (key = 0; key < KEYS; key++)
        value[key] = -1;
    now = 0;
    for (at = 0; at < changes; at++) {
        key = chance(keys);
        name(key, section, text);
        if (chance(2)) {
            sprintf(number, "%d", at);
            wrong += ini_set(ini, section, text, number) != 0;
            if (value[key] < 0)
                since[key] = ++now;
            value[key] = at;
        } else {
            wrong += ini_unset(ini, section, text) != (value[key] < 0 ? -1 : 0);
            value[key] = -1;
        }
        if (at % 50 == 0)
            for (key = 0; key < keys; key++)
                wrong += !as_expected(ini, key);
    }
    for (key = 0; key < keys; key++)
        there += value[key] >= 0;
    ini_each(ini, look, &visit);
    ini_free(ini);
    return wrong + visit.wrong + (visit.seen != there);
}

/* Sets and removes another key each time, with a few that stay. */
static int come_and_go(int times)
{
    struct ini *ini = empty();
    char text[16];
    int at, wrong = 0;

    for (at = 0; at < 5; at++) {
        sprintf(text, "stays%d", at);
        ini_set(ini, "", text, text);
    }
    for (at = 0; at < times; at++) {
        sprintf(text, "goes%d", at);
        wrong += ini_get(ini, "", text) != NULL;
        wrong += ini_set(ini, "", text, "1") != 0;
        wrong += ini_unset(ini, "", text) != 0;
    }
    for (at = 0; at < 5; at++) {
        sprintf(text, "stays%d", at);
        wrong += !ini_get(ini, "", text);
    }
    ini_free(ini);
    return wrong;
}

static int empty_again(int keys)
{
    struct ini *ini = empty();
    char text[16];
    int at, wrong = 0;

    for (at = 0; at < keys; at++) {
        sprintf(text, "%d", at);
        wrong += ini_set(ini, "x", text, text) != 0;
    }
    for (at = 0; at < keys; at++) {
        sprintf(text, "%d", at);
        wrong += ini_unset(ini, "x", text) != 0;
    }
    wrong += ini_get(ini, "x", "0") != NULL;
    wrong += ini_set(ini, "x", "0", "again") != 0 || !ini_get(ini, "x", "0");
    ini_free(ini);
    return wrong;
}

int main(void)
{
    alarm(20);
    ok(play(300, 6) == 0, "model: few keys");
    ok(play(3000, 40) == 0, "model: more keys");
    ok(play(20000, KEYS) == 0, "model: many keys");
    ok(come_and_go(100000) == 0, "model: keys that come and go");
    ok(empty_again(5000) == 0, "model: all keys are removed");
    return finish();
}
