// The proof of repeatability, as a table of small sets of commands.

#include "server/executor/repeat.h"

#include "tests/lib/suite.h"

#define X                                                                                                    \
	{                                                                                                    \
		0x1000, 0x2000                                                                               \
	}
#define Y                                                                                                    \
	{                                                                                                    \
		0x2000, 0x3000                                                                               \
	}
#define Z                                                                                                    \
	{                                                                                                    \
		0x3000, 0x4000                                                                               \
	}
#define A                                                                                                    \
	{                                                                                                    \
		0x9000, 0xa000                                                                               \
	} /* in the arena */

#define KERNEL(s, q)                                                                                         \
	{                                                                                                    \
		.stream = s, .seq = q, .effect = REPEAT_KERNEL                                               \
	}
#define SIGNAL(s, q)                                                                                         \
	{                                                                                                    \
		.stream = s, .seq = q, .effect = REPEAT_SIGNAL, .writes = { 0x5000, 0x5008 }                 \
	}
#define NOTHING(s, q)                                                                                        \
	{                                                                                                    \
		.stream = s, .seq = q, .effect = REPEAT_NOTHING                                              \
	}
#define COPY(s, q, to, of)                                                                                   \
	{                                                                                                    \
		.stream = s, .seq = q, .effect = REPEAT_KNOWN, .writes = to, .reads = of                     \
	}
#define FILL(s, q, to)                                                                                       \
	{                                                                                                    \
		.stream = s, .seq = q, .effect = REPEAT_KNOWN, .writes = to                                  \
	}
#define UPLOAD(s, q, to)                                                                                     \
	{                                                                                                    \
		.stream = s, .seq = q, .effect = REPEAT_KNOWN, .writes = to, .reads = A, .reads_arena = true \
	}
#define FETCH(s, q, of)                                                                                      \
	{                                                                                                    \
		.stream = s, .seq = q, .effect = REPEAT_KNOWN, .writes = A, .reads = of,                     \
		.writes_arena = true                                                                         \
	}

#define DOWNLOAD(s, q, to, of)                                                                               \
	{                                                                                                    \
		.stream = s, .seq = q, .effect = REPEAT_KNOWN, .writes = to, .reads = of, .fetches = true    \
	}

static const struct {
	const char *what;
	struct repeat_command commands[4];
	uint32_t count;
	bool fail, replay; /* provable under each policy */
} rows[] = {
	{"nothing", {NOTHING(1, 1)}, 1, true, true},
	{"a kernel", {KERNEL(1, 1)}, 1, false, true},
	{"two kernels", {KERNEL(1, 1), KERNEL(1, 2)}, 2, false, true},
	{"kernels side by side", {KERNEL(1, 1), KERNEL(2, 1)}, 2, false, true},
	{"a fill", {FILL(1, 1, X)}, 1, true, true},
	{"a copy", {COPY(1, 1, Y, X)}, 1, true, true},
	{"a copy onto itself", {COPY(1, 1, X, X)}, 1, false, false},
	{"a chain of copies", {COPY(1, 1, Y, X), COPY(1, 2, Z, Y)}, 2, true, true},
	{"a source that is overwritten later", {COPY(1, 1, Y, X), FILL(1, 2, X)}, 2, false, false},
	{"a source that is overwritten before", {FILL(1, 1, X), COPY(1, 2, Y, X)}, 2, true, true},
	{"a source that another stream overwrites", {COPY(1, 1, Y, X), FILL(2, 1, X)}, 2, false, false},
	{"streams that do not touch", {COPY(1, 1, Y, X), FILL(2, 1, Z)}, 2, true, true},
	{"a swap", {COPY(1, 1, Z, X), COPY(1, 2, X, Y), COPY(1, 3, Y, Z)}, 3, false, false},
	{"upload, then kernel", {UPLOAD(1, 1, X), KERNEL(1, 2)}, 2, false, true},
	{"kernel, then upload", {KERNEL(1, 1), UPLOAD(1, 2, X)}, 2, false, false},
	{"kernel, then fetch", {KERNEL(1, 1), FETCH(1, 2, X)}, 2, false, true},
	{"kernel, then fetch to pinned memory", {KERNEL(1, 1), DOWNLOAD(1, 2, Y, X)}, 2, false, true},
	{"fetch to pinned memory, then kernel", {DOWNLOAD(1, 1, Y, X), KERNEL(1, 2)}, 2, false, false},
	{"a whole round", {UPLOAD(1, 1, X), KERNEL(1, 2), DOWNLOAD(1, 3, Z, Y)}, 3, false, true},
	{"fetch, then kernel", {FETCH(1, 1, X), KERNEL(1, 2)}, 2, false, false},
	{"fetch, then upload elsewhere", {FETCH(1, 1, X), UPLOAD(1, 2, Y)}, 2, true, true},
	{"kernel, event", {KERNEL(1, 1), NOTHING(1, 2)}, 2, false, true},
	{"a signal", {SIGNAL(1, 1)}, 1, false, false},
	{"fill, then signal", {FILL(1, 1, X), SIGNAL(1, 2)}, 2, false, false},
};

START_TEST(table)
{
	uint32_t index;

	ck_assert_msg(repeat_is_provable(rows[_i].commands, rows[_i].count, false, &index) == rows[_i].fail,
		"%s", rows[_i].what);
	ck_assert_msg(repeat_is_provable(rows[_i].commands, rows[_i].count, true, &index) == rows[_i].replay,
		"%s, with replay", rows[_i].what);
}
END_TEST

TEST(proof, names_the_kernel)
{
	const struct repeat_command commands[] = { COPY(1, 1, X, X), FILL(1, 2, Y), KERNEL(1, 3) };
	uint32_t index = 9;

	ck_assert(!repeat_is_provable(commands, 3, false, &index));
	ck_assert_uint_eq(index, 2);
	ck_assert(!repeat_is_provable(commands, 3, true, &index));
	ck_assert_uint_eq(index, 0);
}

TEST(proof, nothing_is_provable)
{
	uint32_t index;

	ck_assert(repeat_is_provable(NULL, 0, false, &index));
}

int main(void)
{
	Suite *suite = suite_create("repeat");
	TCase *proof = suite_case(suite, "proof");

	suite_add(proof, "proof");
	tcase_add_loop_test(proof, table, 0, sizeof(rows) / sizeof(rows[0]));
	return suite_run(suite);
}
