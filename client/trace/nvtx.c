// Ranges and marks that a program makes with version 3 of NVTX. NVTX is a header in the program. At
// the first call the header loads the library that NVTX_INJECTION64_PATH names and calls the
// function below, which puts the trace's functions into the header's tables. frmps-run --trace
// names this library.
//
// The trace takes ranges of a thread and marks, with and without a domain. It leaves out ranges
// that may end in another thread. Any thread; owns the strings that programs register, which are
// never freed.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "client/trace/line.h"
#include "client/trace/trace.h"

#define TABLE_CALLBACKS 1u
#define MODULE_CORE	1
#define MODULE_DOMAINS	5

/* Places in the tables. */
enum core { MARK_EX = 1, MARK = 2, MARK_W = 3, PUSH_EX = 8, PUSH = 9, PUSH_W = 10, POP = 11 };
enum domains {
	DOMAIN_MARK_EX = 1,
	DOMAIN_PUSH_EX = 4,
	DOMAIN_POP = 5,
	DOMAIN_REGISTER = 10,
	DOMAIN_REGISTER_W = 11,
	DOMAIN_CREATE = 12,
	DOMAIN_CREATE_W = 13,
};

typedef void function_fn(void);

struct callbacks {
	size_t size;
	int (*find_table)(int module, function_fn ****ret_table, unsigned int *ret_count);
};

enum message_kind { MESSAGE_TEXT = 1, MESSAGE_WIDE = 2, MESSAGE_REGISTERED = 3 };

/* Of a mark or a range: nvtxEventAttributes_t of the header. */
struct attributes {
	uint16_t version, size;
	uint32_t category;
	int32_t color_kind;
	uint32_t color;
	int32_t payload_kind, reserved;
	uint64_t payload;
	int32_t message_kind; /* enum message_kind */
	const void *message;
};

#define TEXT_BYTES (LINE_NAME_BYTES + 1)

/* As UTF-8, cut where there is no more room. */
static const char *narrow(const wchar_t *wide, char text[TEXT_BYTES])
{
	size_t used = 0;

	for (; wide && *wide && used + 4 < TEXT_BYTES; ++wide) {
		uint32_t c = (uint32_t)*wide;

		if (c >= 0x10000) {
			text[used++] = (char)(0xf0 | (c >> 18 & 7));
			text[used++] = (char)(0x80 | (c >> 12 & 0x3f));
		} else if (c >= 0x800) {
			text[used++] = (char)(0xe0 | c >> 12);
		}
		if (c >= 0x800)
			text[used++] = (char)(0x80 | (c >> 6 & 0x3f));
		else if (c >= 0x80)
			text[used++] = (char)(0xc0 | c >> 6);
		text[used++] = (char)(c >= 0x80 ? 0x80 | (c & 0x3f) : c);
	}
	text[used] = '\0';
	return text;
}

static const char *message_of(const struct attributes *attributes, char text[TEXT_BYTES])
{
	if (!attributes || attributes->size < sizeof(*attributes))
		return "";
	switch (attributes->message_kind) {
	case MESSAGE_WIDE:
		return narrow(attributes->message, text);
	case MESSAGE_TEXT:
	case MESSAGE_REGISTERED: /* what register_string() returned */
		return attributes->message;
	default:
		return "";
	}
}

/* Open ranges of the thread, as NVTX counts them: whether or not they are recorded. */
static __thread int level;

static void mark(const char *name)
{
	if (trace_is_on())
		trace_mark(name);
}

static void mark_wide(const wchar_t *name)
{
	char text[TEXT_BYTES];

	mark(narrow(name, text));
}

static void mark_ex(const struct attributes *attributes)
{
	char text[TEXT_BYTES];

	mark(message_of(attributes, text));
}

static void domain_mark_ex(const void *domain, const struct attributes *attributes)
{
	(void)domain;
	mark_ex(attributes);
}

static int push(const char *name)
{
	if (trace_is_on())
		trace_push(name);
	return level++;
}

static int push_wide(const wchar_t *name)
{
	char text[TEXT_BYTES];

	return push(narrow(name, text));
}

static int push_ex(const struct attributes *attributes)
{
	char text[TEXT_BYTES];

	return push(message_of(attributes, text));
}

static int domain_push_ex(const void *domain, const struct attributes *attributes)
{
	(void)domain;
	return push_ex(attributes);
}

static int pop(void)
{
	if (trace_is_on())
		trace_pop();
	return level > 0 ? --level : -1;
}

static int domain_pop(const void *domain)
{
	(void)domain;
	return pop();
}

static const void *create(const char *name)
{
	return strdup(name ? name : "");
}

static const void *create_wide(const wchar_t *name)
{
	char text[TEXT_BYTES];

	return create(narrow(name, text));
}

static const void *register_string(const void *domain, const char *string)
{
	(void)domain;
	return create(string);
}

static const void *register_wide(const void *domain, const wchar_t *string)
{
	(void)domain;
	return create_wide(string);
}

struct row {
	unsigned int place;
	function_fn *function;
};

static const struct row core_rows[] = {
	{MARK_EX, (function_fn *)mark_ex},
	{MARK, (function_fn *)mark},
	{MARK_W, (function_fn *)mark_wide},
	{PUSH_EX, (function_fn *)push_ex},
	{PUSH, (function_fn *)push},
	{PUSH_W, (function_fn *)push_wide},
	{POP, (function_fn *)pop},
};

static const struct row domain_rows[] = {
	{DOMAIN_MARK_EX, (function_fn *)domain_mark_ex},
	{DOMAIN_PUSH_EX, (function_fn *)domain_push_ex},
	{DOMAIN_POP, (function_fn *)domain_pop},
	{DOMAIN_REGISTER, (function_fn *)register_string},
	{DOMAIN_REGISTER_W, (function_fn *)register_wide},
	{DOMAIN_CREATE, (function_fn *)create},
	{DOMAIN_CREATE_W, (function_fn *)create_wide},
};

/* A table holds the addresses of the header's pointers to functions. */
static void fill(const struct callbacks *callbacks, int module, const struct row *rows, size_t count)
{
	function_fn ***table = NULL;
	unsigned int places = 0;

	if (!callbacks->find_table(module, &table, &places) || !table)
		return;
	for (size_t i = 0; i < count; ++i)
		if (rows[i].place < places && table[rows[i].place])
			*table[rows[i].place] = rows[i].function;
}

/** NVTX's own name. @find: tables of the caller. Return: whether this library takes part */
__attribute__((visibility("protected"))) int InitializeInjectionNvtx2(const void *(*find)(uint32_t table));

int InitializeInjectionNvtx2(const void *(*find)(uint32_t table))
{
	const struct callbacks *callbacks = secure_getenv("FRMPS_TRACE") ? find(TABLE_CALLBACKS) : NULL;

	if (!callbacks || callbacks->size < sizeof(*callbacks))
		return 0;
	fill(callbacks, MODULE_CORE, core_rows, sizeof(core_rows) / sizeof(core_rows[0]));
	fill(callbacks, MODULE_DOMAINS, domain_rows, sizeof(domain_rows) / sizeof(domain_rows[0]));
	return 1;
}
