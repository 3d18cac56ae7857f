/* Checks a JSON document (RFC 8259), and counts what is in it.
 *
 * Every character comes through `next`, which decodes UTF-8, counts lines, and refuses what is not UTF-8.
 * Nearly every character is ASCII, so that most of that code hardly ever runs: a compiler can't know.
 *
 * usage: json [ROUNDS [FILE]]   reads FILE, or a document that it makes itself, that often.
 */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { END = -1, DEEPEST = 64, LONGEST_NUMBER = 64 };

typedef struct {
    const unsigned char *next;
    const unsigned char *end;
    int32_t current;
    uint32_t line;
    uint32_t column;
    uint32_t depth;
} Reader;

typedef struct {
    uint64_t objects;
    uint64_t arrays;
    uint64_t strings;
    uint64_t numbers;
    uint64_t literals;
    uint64_t beyond_ascii;
    uint64_t hash;
    double sum;
} Counts;

static _Noreturn void refuse(const Reader *reader, const char *reason)
{
    fprintf(stderr, "json: line %" PRIu32 ", column %" PRIu32 ": %s\n", reader->line, reader->column, reason);
    exit(1);
}

/* The bits of a continuation byte, or -1. */
static int32_t continuation(const Reader *reader, ptrdiff_t offset)
{
    if (offset >= reader->end - reader->next)
        return -1;
    return (reader->next[offset] & 0xc0) == 0x80 ? reader->next[offset] & 0x3f : -1;
}

/* Goes to the next character, and gives it. */
static int32_t next(Reader *reader)
{
    if (reader->next == reader->end)
        return reader->current = END;

    int32_t first = *reader->next;
    int32_t second;
    int32_t third;
    int32_t fourth;

    if (reader->current == '\n' || (reader->current == '\r' && first != '\n')) {
        reader->line++;
        reader->column = 0;
    }
    reader->column++;
    if (first >= 0xf0) {
        second = continuation(reader, 1);
        third = continuation(reader, 2);
        fourth = continuation(reader, 3);
        if (first > 0xf4 || second < 0 || third < 0 || fourth < 0)
            refuse(reader, "not UTF-8: four bytes");
        first = (first & 0x07) << 18 | second << 12 | third << 6 | fourth;
        if (first < 0x10000 || first > 0x10ffff)
            refuse(reader, "not UTF-8: out of range");
        reader->next += 4;
    } else if (first >= 0xe0) {
        second = continuation(reader, 1);
        third = continuation(reader, 2);
        if (second < 0 || third < 0)
            refuse(reader, "not UTF-8: three bytes");
        first = (first & 0x0f) << 12 | second << 6 | third;
        if (first < 0x800 || (first >= 0xd800 && first < 0xe000))
            refuse(reader, "not UTF-8: overlong, or a surrogate");
        if (first == 0xfeff && reader->column > 1)
            refuse(reader, "a byte order mark inside");
        reader->next += 3;
    } else if (first >= 0xc2) {
        second = continuation(reader, 1);
        if (second < 0)
            refuse(reader, "not UTF-8: two bytes");
        first = (first & 0x1f) << 6 | second;
        reader->next += 2;
    } else if (first >= 0x80) {
        refuse(reader, "not UTF-8: a continuation comes first");
    } else {
        if (first < ' ' && first != '\n' && first != '\r' && first != '\t')
            refuse(reader, "a control character");
        reader->next++;
    }
    return reader->current = first;
}

static void skip_space(Reader *reader)
{
    while (reader->current == ' ' || reader->current == '\n' || reader->current == '\r'
           || reader->current == '\t')
        next(reader);
}

static void expect(Reader *reader, int32_t wanted, const char *reason)
{
    if (reader->current != wanted)
        refuse(reader, reason);
    next(reader);
}

static int32_t hexadecimal(Reader *reader)
{
    int32_t number = 0;

    for (int digit = 0; digit < 4; digit++) {
        int32_t character = next(reader);
        number <<= 4;
        if (character >= '0' && character <= '9')
            number |= character - '0';
        else if (character >= 'a' && character <= 'f')
            number |= character - 'a' + 10;
        else if (character >= 'A' && character <= 'F')
            number |= character - 'A' + 10;
        else
            refuse(reader, "four hexadecimal digits are wanted");
    }
    return number;
}

/* The character that an escape stands for. */
static int32_t escaped(Reader *reader)
{
    int32_t high;
    int32_t low;

    switch (next(reader)) {
    case '"':
    case '\\':
    case '/':
        return reader->current;
    case 'b':
        return '\b';
    case 'f':
        return '\f';
    case 'n':
        return '\n';
    case 'r':
        return '\r';
    case 't':
        return '\t';
    case 'u':
        high = hexadecimal(reader);
        if (high < 0xd800 || high >= 0xe000)
            return high;
        if (high >= 0xdc00 || next(reader) != '\\' || next(reader) != 'u')
            refuse(reader, "half a pair of surrogates");
        low = hexadecimal(reader);
        if (low < 0xdc00 || low >= 0xe000)
            refuse(reader, "half a pair of surrogates");
        return 0x10000 + ((high - 0xd800) << 10 | (low - 0xdc00));
    default:
        refuse(reader, "no such escape");
    }
}

static void string(Reader *reader, Counts *counts)
{
    int32_t character = next(reader);

    while (character != '"') {
        if (character == END)
            refuse(reader, "the document ends within a string");
        if (character == '\\')
            character = escaped(reader);
        else if (character < ' ')
            refuse(reader, "a control character within a string");
        if (character >= 0x80)
            counts->beyond_ascii++;
        counts->hash = (counts->hash ^ (uint64_t)character) * 0x100000001b3;
        character = next(reader);
    }
    counts->strings++;
    next(reader);
}

static int is_digit(int32_t character)
{
    return character >= '0' && character <= '9';
}

static void number(Reader *reader, Counts *counts)
{
    char text[LONGEST_NUMBER + 1];
    int length = 0;
    int whole = 1;
    int64_t value = 0;
    int negative = reader->current == '-';

    if (negative) {
        text[length++] = '-';
        next(reader);
    }
    if (!is_digit(reader->current))
        refuse(reader, "a digit is wanted");
    if (reader->current == '0') {
        text[length++] = '0';
        if (is_digit(next(reader)))
            refuse(reader, "a number starts with 0");
    }
    for (;;) {
        int32_t character = reader->current;
        if (is_digit(character)) {
            if (length < 18)
                value = value * 10 + (character - '0');
        } else if (character == '.' || character == 'e' || character == 'E' || character == '+'
                   || (character == '-' && !whole)) {
            whole = 0;
        } else {
            break;
        }
        if (length == LONGEST_NUMBER)
            refuse(reader, "a number is too long");
        text[length++] = (char)character;
        next(reader);
    }
    text[length] = '\0';
    if (whole && length < 18) {
        counts->sum += (double)(negative ? -value : value);
    } else {
        char *end;
        counts->sum += strtod(text, &end);
        if (*end != '\0')
            refuse(reader, "not a number");
    }
    counts->numbers++;
}

static void literal(Reader *reader, Counts *counts)
{
    const char *word = reader->current == 't' ? "true" : reader->current == 'f' ? "false" : "null";

    for (const char *letter = word; *letter != '\0'; letter++)
        expect(reader, *letter, "no such word");
    counts->literals++;
}

static void value(Reader *reader, Counts *counts)
{
    if (++reader->depth > DEEPEST)
        refuse(reader, "too deep");
    skip_space(reader);
    if (reader->current == '{') {
        counts->objects++;
        next(reader);
        skip_space(reader);
        while (reader->current != '}') {
            if (reader->current != '"')
                refuse(reader, "a name is wanted");
            string(reader, counts);
            skip_space(reader);
            expect(reader, ':', "a colon is wanted");
            value(reader, counts);
            skip_space(reader);
            if (reader->current == ',') {
                next(reader);
                skip_space(reader);
                if (reader->current == '}')
                    refuse(reader, "a comma comes last");
            }
        }
        next(reader);
    } else if (reader->current == '[') {
        counts->arrays++;
        next(reader);
        skip_space(reader);
        while (reader->current != ']') {
            value(reader, counts);
            skip_space(reader);
            if (reader->current == ',') {
                next(reader);
                skip_space(reader);
                if (reader->current == ']')
                    refuse(reader, "a comma comes last");
            }
        }
        next(reader);
    } else if (reader->current == '"') {
        string(reader, counts);
    } else if (reader->current == '-' || is_digit(reader->current)) {
        number(reader, counts);
    } else {
        literal(reader, counts);
    }
    reader->depth--;
}

static Counts check(const char *document, size_t length)
{
    Counts counts = {.hash = 0xcbf29ce484222325};
    Reader reader = {
        .next = (const unsigned char *)document,
        .end = (const unsigned char *)document + length,
        .line = 1,
    };

    next(&reader);
    value(&reader, &counts);
    skip_space(&reader);
    if (reader.current != END)
        refuse(&reader, "more than one value");
    return counts;
}

/* A log in JSON, as services write it: about 2 MB, with an accent or an escape here and there. */
static char *made_document(size_t *length)
{
    enum { RECORDS = 16000, LONGEST_RECORD = 256 };
    static const char *const levels[] = {"info", "info", "info", "debug", "warning", "error"};
    static const char *const places[] = {"Lyon", "Oslo", "Bergen", "Malm\xc3\xb6", "Graz", "Porto"};
    char *document = malloc(RECORDS * LONGEST_RECORD);
    uint32_t random = 1;
    size_t used = 0;

    if (document == NULL)
        exit(1);
    document[used++] = '[';
    for (int record = 0; record < RECORDS; record++) {
        random = random * 1664525 + 1013904223;
        used += (size_t)snprintf(
            document + used, LONGEST_RECORD,
            "%s\n  {\"time\": %d, \"level\": \"%s\", \"place\": \"%s\", \"ok\": %s, "
            "\"latency\": %" PRIu32 "%s, \"tags\": [\"a%" PRIu32 "\", \"route %d\"], "
            "\"message\": \"request %d was answered%s\"}",
            record ? "," : "", 1700000000 + record, levels[random >> 8 & 3], places[(random >> 12) % 6],
            random >> 20 & 15 ? "true" : "null", random >> 16 & 1023, random >> 24 & 31 ? "" : ".25e1",
            random >> 9 & 63, record % 17, record, random >> 27 ? "" : "\\n\\u00e9");
    }
    document[used++] = ']';
    *length = used;
    return document;
}

static char *read_document(const char *path, size_t *length)
{
    FILE *file = fopen(path, "rb");
    char *document = NULL;
    long size;

    if (file != NULL && fseek(file, 0, SEEK_END) == 0 && (size = ftell(file)) >= 0) {
        rewind(file);
        document = malloc((size_t)size + 1);
        if (document != NULL)
            *length = fread(document, 1, (size_t)size, file);
        fclose(file);
    }
    if (document == NULL) {
        fprintf(stderr, "json: can't read %s\n", path);
        exit(1);
    }
    return document;
}

int main(int count, char **arguments)
{
    long rounds = count > 1 ? strtol(arguments[1], NULL, 10) : 100;
    size_t length = 0;
    char *document = count > 2 ? read_document(arguments[2], &length) : made_document(&length);
    Counts counts = {0};

    for (long round = 0; round < rounds; round++)
        counts = check(document, length);
    printf("%" PRIu64 " objects, %" PRIu64 " arrays, %" PRIu64 " strings, %" PRIu64 " numbers, %" PRIu64
           " literals, %" PRIu64 " beyond ASCII, sum %.2f, hash %016" PRIx64 "\n",
           counts.objects, counts.arrays, counts.strings, counts.numbers, counts.literals,
           counts.beyond_ascii, counts.sum, counts.hash);
    free(document);
    return 0;
}
