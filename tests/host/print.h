// For modules of the host backend with kernels that print: included once, by the source that
// defines the kernels. The module then has a variable for the destination of the output
// (shm/text.h), which the backend sets: the program that loaded the module prints the output on its
// standard output, and the text of an assertion on its standard error.

#ifndef FRMPS_TESTS_HOST_PRINT_H
#define FRMPS_TESTS_HOST_PRINT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/host/kernel.h"
#include "shm/text.h"

/* Texts are cut to this, with the NUL. */
#define HOST_TEXT_MAX 1024u

/* Set when the module is loaded; NULL: to the executor's own standard output. */
extern __attribute__((visibility("default"))) struct shm_text *frmps_host_text;
struct shm_text *frmps_host_text;

/* Writes a record of words. */
static inline void host_text_put(enum shm_text_kind kind, const uint64_t *words, uint64_t count)
{
	struct shm_text *text = frmps_host_text;
	uint64_t bytes = (count + 1) * sizeof(*words), at = atomic_fetch_add(&text->head, bytes);

	for (uint64_t i = 0; i < count; i++)
		word_set(&text->words[(at / sizeof(*words) + i + 1) % (text->bytes / sizeof(*words))],
			words[i]);
	/* Pairs with the reader's look at the first word. */
	word_release(&text->words[at / sizeof(*words) % (text->bytes / sizeof(*words))],
		SHM_TEXT_FIRST(bytes, kind, at));
}

/** As printf() in a kernel; the text is put together here. */
static inline __attribute__((format(printf, 1, 2))) void host_printf(const char *format, ...)
{
	uint64_t words[HOST_TEXT_MAX / sizeof(uint64_t)] = {0};
	va_list arguments;

	va_start(arguments, format);
	vsnprintf((char *)words, sizeof(words), format, arguments);
	va_end(arguments);
	if (frmps_host_text)
		host_text_put(SHM_TEXT_PLAIN, words, strlen((char *)words) / sizeof(words[0]) + 1);
	else
		fputs((char *)words, stdout);
}

/* Adds a text to words of a record, which have room for HOST_TEXT_MAX bytes. Return: words. */
static inline uint64_t host_text_add(uint64_t *words, const char *text)
{
	size_t length = strnlen(text, HOST_TEXT_MAX - 1), count = length / sizeof(*words) + 1;

	memset(words, 0, count * sizeof(*words));
	memcpy(words, text, length);
	return count;
}

/** As a failed assert() in a kernel. */
static inline void host_assert_fail(const char *condition, const char *file, uint32_t line,
	const char *function, const struct host_block_index *block, uint32_t thread)
{
	uint64_t words[7 + 3 * HOST_TEXT_MAX / sizeof(uint64_t)] = {
		line, block->x, block->y, block->z, thread, 0, 0};
	uint64_t count = 7;

	count += host_text_add(words + count, condition);
	count += host_text_add(words + count, file);
	count += host_text_add(words + count, function);
	if (frmps_host_text)
		host_text_put(SHM_TEXT_ASSERT, words, count);
	abort();
}
#define HOST_ASSERT(block, thread, condition)                                                                \
	((condition) ? (void)0                                                                               \
		     : host_assert_fail(#condition, __FILE__, __LINE__, __func__, (block), (thread)))

#endif
