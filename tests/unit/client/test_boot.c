// What a program meets before any of its own calls: lookup of entry points, the unnamed tables, the
// start-up check, context-local storage, error names, and the refusal of what is missing. No
// service, no device.

#include "client/entry/api.h"
#include "client/link/integrity.h"
#include "client/state/cls.h"
#include "client/state/log.h"
#include "protocol/shim_uuid.h"
#include "tests/lib/suite.h"
#include "tests/unit/client/fake_state.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

/*
 * Every exported function by its symbol, taken from the table independently of the lookup under
 * test.
 */

#define DECLARE_FULL(symbol)
#define DECLARE_LOCAL(symbol)
#define DECLARE_REFUSED(symbol)			      CUresult symbol(void) __attribute__((visibility("protected")));
#define API(symbol, base, since, variant, kind, note) DECLARE_##kind(symbol)
#include "client/api.def"
#undef API

struct exported {
	const char *symbol;
	const char *base;
	int since;
	int per_thread;
	void *address;
};

enum { LEGACY, PTSZ };

static const struct exported exports[] = {
#define API(symbol, base, since, variant, kind, note) {#symbol, base, since, variant, (void *)symbol},
#include "client/api.def"
#undef API
};

#define EXPORTS (sizeof(exports) / sizeof(exports[0]))

static const char *symbol_at(const void *address)
{
	for (size_t i = 0; i < EXPORTS; i++) {
		if (exports[i].address == address)
			return exports[i].symbol;
	}
	return address ? "(a stranger)" : "NULL";
}

/*
 * Finding entry points
 */

static const struct {
	const char *base;
	int version;
	unsigned int flags;
	const char *symbol;
} queries[] = {
	{"", 0, 0, "NULL"},
	{"cuNoSuchCall", 13000, 0, "NULL"},
	{"cuMemAlloc_v2", 13000, 0, "NULL"},
	{"cuInit", 2000, 0, "cuInit"},
	{"cuInit", 1999, 0, "NULL"},
	{"cuGetProcAddress", 11030, 0, "cuGetProcAddress"},
	{"cuGetProcAddress", 11999, 0, "cuGetProcAddress"},
	{"cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2"},
	{"cuMemAlloc", 2000, 0, "cuMemAlloc"},
	{"cuMemAlloc", 3020, 0, "cuMemAlloc_v2"},
	{"cuMemAlloc", 13000, 0, "cuMemAlloc_v2"},
	{"cuMemAlloc", 3020, 2, "cuMemAlloc_v2"},
	{"cuCtxCreate", 2000, 0, "cuCtxCreate"},
	{"cuCtxCreate", 3020, 0, "cuCtxCreate_v2"},
	{"cuCtxCreate", 11040, 0, "cuCtxCreate_v3"},
	{"cuCtxCreate", 12040, 0, "cuCtxCreate_v3"},
	{"cuCtxCreate", 12050, 0, "cuCtxCreate_v4"},
	{"cuCtxSynchronize", 2000, 0, "cuCtxSynchronize"},
	{"cuCtxSynchronize", 13000, 0, "cuCtxSynchronize_v2"},
	{"cuEventElapsedTime", 2000, 0, "cuEventElapsedTime"},
	{"cuEventElapsedTime", 12080, 0, "cuEventElapsedTime_v2"},
	{"cuStreamGetCaptureInfo", 10010, 0, "cuStreamGetCaptureInfo"},
	{"cuStreamGetCaptureInfo", 11030, 0, "cuStreamGetCaptureInfo_v2"},
	{"cuStreamGetCaptureInfo", 12030, 0, "cuStreamGetCaptureInfo_v3"},
	{"cuStreamGetCaptureInfo", 10010, 2, "cuStreamGetCaptureInfo_ptsz"},
	{"cuStreamGetCaptureInfo", 11030, 2, "cuStreamGetCaptureInfo_v2_ptsz"},
	{"cuStreamGetCaptureInfo", 12030, 2, "cuStreamGetCaptureInfo_v3_ptsz"},
	{"cuMemcpyHtoD", 3020, 1, "cuMemcpyHtoD_v2"},
	{"cuMemcpyHtoD", 7000, 2, "cuMemcpyHtoD_v2_ptds"},
	/* Streams of threads are younger. */
	{"cuMemcpyHtoD", 3020, 2, "NULL"},
	{"cuMemcpyBatchAsync", 12080, 0, "cuMemcpyBatchAsync"},
	{"cuMemcpyBatchAsync", 13000, 0, "cuMemcpyBatchAsync_v2"},
	{"cuMemcpyBatchAsync", 13000, 2, "cuMemcpyBatchAsync_v2_ptsz"},
	{"cuLaunchKernel", 4000, 0, "cuLaunchKernel"},
	{"cuLaunchKernel", 6050, 2, "NULL"},
	{"cuLaunchKernel", 7000, 2, "cuLaunchKernel_ptsz"},
	{"cuMemcpyDtoH", 2000, 2, "NULL"},
	{"cuMemcpyDtoH", 2000, 0, "cuMemcpyDtoH"},
	{"cuMemFree", 2000, 2, "cuMemFree"},
	{"cuProfilerStart", 4000, 0, "cuProfilerStart"},
	{"cuGLInit", 2000, 0, "NULL"},
};

TEST_LOOP(lookup, lookup_follows_version_and_flags, 0, COUNT(queries))
{
	CUdriverProcAddressQueryResult status = 77;
	void *address = (void *)1;
	CUresult result = cuGetProcAddress_v2(
		queries[_i].base, &address, queries[_i].version, queries[_i].flags, &status);

	ck_assert_str_eq(symbol_at(address), queries[_i].symbol);
	ck_assert_int_eq(result, CUDA_SUCCESS);
	ck_assert_int_eq(status == CU_GET_PROC_ADDRESS_SUCCESS, address != NULL);
}

TEST(lookup, lookup_finds_every_export_at_its_version)
{
	for (size_t i = 0; i < EXPORTS; i++) {
		void *address = NULL;

		ck_assert_int_eq(cuGetProcAddress(exports[i].base, &address, exports[i].since,
					 exports[i].per_thread == PTSZ ? 2 : 0),
			CUDA_SUCCESS);
		ck_assert_str_eq(symbol_at(address), exports[i].symbol);
	}
}

TEST(lookup, lookup_reports_why_nothing_was_found)
{
	CUdriverProcAddressQueryResult status = 77;
	void *address = (void *)1;

	cuGetProcAddress_v2("cuNoSuchCall", &address, 13000, 0, &status);
	ck_assert_int_eq(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
	cuGetProcAddress_v2("cuLibraryLoadData", &address, 11080, 0, &status);
	ck_assert_int_eq(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);

	/* Flags of a later driver. */
	address = (void *)1;
	ck_assert_int_eq(
		cuGetProcAddress_v2("cuInit", &address, 12000, 8, &status), CUDA_ERROR_INVALID_VALUE);
	ck_assert_ptr_eq(address, (void *)1);

	/* A program made for a newer driver than this one. */
	address = (void *)1;
	ck_assert_int_eq(cuGetProcAddress_v2("cuInit", &address, CUDA_ABI_VERSION + 10, 0, &status),
		CUDA_ERROR_INVALID_VALUE);
	ck_assert_ptr_eq(address, (void *)1);
	ck_assert_int_eq(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);

	/* Nobody asks for the reason: then the result has to say it. */
	ck_assert_int_eq(cuGetProcAddress("cuNoSuchCall", &address, 13000, 0), CUDA_ERROR_NOT_FOUND);
	ck_assert_ptr_null(address);
}

TEST(lookup, lookup_bears_missing_arguments)
{
	void *address = (void *)1;

	ck_assert_int_eq(cuGetProcAddress_v2("cuInit", &address, 2000, 0, NULL), CUDA_SUCCESS);
	ck_assert_ptr_nonnull(address);
	ck_assert_int_eq(cuGetProcAddress_v2("cuInit", NULL, 2000, 0, NULL), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuGetProcAddress_v2(NULL, &address, 2000, 0, NULL), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuGetProcAddress(NULL, &address, 2000, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST(lookup, table_is_in_order)
{
	ck_assert_uint_eq(EXPORTS, 637);
	for (size_t i = 1; i < EXPORTS; i++) {
		const struct exported *before = &exports[i - 1], *here = &exports[i];
		int order = strcmp(before->base, here->base);

		ck_assert_msg(order <= 0, "%s stands after %s", here->symbol, before->symbol);
		if (order)
			continue;
		ck_assert_msg(before->per_thread < here->per_thread ||
				      (before->per_thread == here->per_thread && before->since < here->since),
			"%s stands after %s", here->symbol, before->symbol);
	}
}

/*
 * Refused calls and the log
 */

/* Runs `act` with stderr in a file and returns what was written there (static buffer). */
static const char *stderr_of(void (*act)(void))
{
	static char text[8192];
	FILE *file = tmpfile();
	int saved = dup(STDERR_FILENO);
	ssize_t length;

	ck_assert_ptr_nonnull(file);
	ck_assert_int_ge(saved, 0);
	ck_assert_int_ge(dup2(fileno(file), STDERR_FILENO), 0);
	act();
	ck_assert_int_ge(dup2(saved, STDERR_FILENO), 0);
	close(saved);
	length = pread(fileno(file), text, sizeof(text) - 1, 0);
	ck_assert_int_ge(length, 0);
	text[length] = '\0';
	fclose(file);
	return text;
}

static void call_refused(void)
{
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(cuMemBatchDecompressAsync(), CUDA_ERROR_NOT_SUPPORTED);
		ck_assert_int_eq(cuMemAlloc(), CUDA_ERROR_NOT_SUPPORTED);
	}
}

TEST(words, refusal_is_said_once_per_call)
{
	unsetenv("FRMPS_LOG");
	ck_assert_str_eq(stderr_of(call_refused),
		"frmps: cuMemBatchDecompressAsync is not supported (decompression engine)\nfrmps: "
		"cuMemAlloc is not supported (32-bit form)\n");
}

TEST(words, refusal_is_silent_when_asked)
{
	setenv("FRMPS_LOG", "off", 1);
	ck_assert_str_eq(stderr_of(call_refused), "");
}

static void call_every_refused(void)
{
	int refused = 0;

#define CALL_FULL(symbol)
#define CALL_LOCAL(symbol)
#define CALL_REFUSED(symbol)			      refused += (symbol() == CUDA_ERROR_NOT_SUPPORTED);
#define API(symbol, base, since, variant, kind, note) CALL_##kind(symbol)
#include "client/api.def"
#undef API
	ck_assert_int_gt(refused, 50);
}

TEST(words, every_refused_call_returns_not_supported)
{
	setenv("FRMPS_LOG", "off", 1);
	call_every_refused();
}

static void log_all_levels(void)
{
	errno = 5;
	client_log(CLIENT_LOG_ERROR, "e%d", 1);
	client_log(CLIENT_LOG_INFO, "i%d", 2);
	client_log(CLIENT_LOG_DEBUG, "d%d", 3);
	ck_assert_int_eq(errno, 5);
}

TEST_LOOP(words, log_obeys_the_level, 0, 4)
{
	static const char *const levels[] = {"error", "info", "debug", "nonsense"};
	static const char *const lines[] = {"frmps: e1\n", "frmps: e1\nfrmps: i2\n",
		"frmps: e1\nfrmps: i2\nfrmps: d3\n",
		"frmps: FRMPS_LOG=nonsense is none of off, error, info, debug: it is ignored\nfrmps: e1\n"};

	setenv("FRMPS_LOG", levels[_i], 1);
	ck_assert_str_eq(stderr_of(log_all_levels), lines[_i]);
}

/* SIGPIPE would be the end of this process. */
TEST(words, log_has_no_reader)
{
	int ends[2];

	ck_assert_int_eq(pipe(ends), 0);
	ck_assert_int_eq(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
	close(ends[0]);
	close(ends[1]);
	errno = 5;
	client_log(CLIENT_LOG_ERROR, "nobody reads this");
	ck_assert_int_eq(errno, 5);
}

static void log_a_long_line(void)
{
	char text[2 * CLIENT_LOG_LINE_MAX];

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	client_log(CLIENT_LOG_ERROR, "%s", text);
}

TEST(words, log_cuts_long_lines)
{
	const char *text;

	unsetenv("FRMPS_LOG");
	text = stderr_of(log_a_long_line);
	ck_assert_uint_lt(strlen(text), CLIENT_LOG_LINE_MAX);
	ck_assert_uint_gt(strlen(text), CLIENT_LOG_LINE_MAX - 8);
	ck_assert_str_eq(text + strlen(text) - 5, "x...\n");
}

/*
 * Error names
 */

TEST(words, errors_have_names_and_texts)
{
	const char *text = NULL;

	ck_assert_int_eq(cuGetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &text), CUDA_SUCCESS);
	ck_assert_str_eq(text, "CUDA_ERROR_ILLEGAL_ADDRESS");
	ck_assert_int_eq(cuGetErrorString(CUDA_ERROR_ILLEGAL_ADDRESS, &text), CUDA_SUCCESS);
	ck_assert_str_eq(text, "an illegal memory access was encountered");
	ck_assert_int_eq(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text), CUDA_SUCCESS);
	ck_assert_str_eq(text, "out of memory");
	ck_assert_int_eq(cuGetErrorName(CUDA_SUCCESS, &text), CUDA_SUCCESS);
	ck_assert_str_eq(text, "CUDA_SUCCESS");
}

static uint32_t sum_of(const char *text)
{
	uint32_t sum = 2166136261u;

	for (; *text; text++)
		sum = (sum ^ (unsigned char)*text) * 16777619u;
	return sum;
}

/* The sum over all codes is that of the driver (580.159.04). On a GPU the corpus compares each. */
TEST(words, errors_have_the_drivers_names_and_texts)
{
	const char *name, *text;
	uint32_t sum = 0, count = 0;

	for (int code = 0; code < 1100; code++) {
		if (cuGetErrorName((CUresult)code, &name) || cuGetErrorString((CUresult)code, &text))
			continue;
		sum = sum * 31 + sum_of(name) + sum_of(text);
		count++;
	}
	ck_assert_uint_eq(count, 101);
	ck_assert_uint_eq(sum, 0x427c1b22);
}

TEST(words, unknown_errors_have_none)
{
	const char *text = "old";

	ck_assert_int_eq(cuGetErrorName((CUresult)12345, &text), CUDA_ERROR_INVALID_VALUE);
	ck_assert_ptr_null(text);
	text = "old";
	ck_assert_int_eq(cuGetErrorString((CUresult)-1, &text), CUDA_ERROR_INVALID_VALUE);
	ck_assert_ptr_null(text);
	ck_assert_int_eq(cuGetErrorString(CUDA_SUCCESS, NULL), CUDA_ERROR_INVALID_VALUE);
}

/*
 * The start-up check
 */

static void hex(const uint8_t digest[INTEGRITY_DIGEST_BYTES], char ret_text[33])
{
	for (int i = 0; i < INTEGRITY_DIGEST_BYTES; i++)
		snprintf(ret_text + 2 * i, 3, "%02x", digest[i]);
}

TEST_LOOP(tables, md2_matches_the_standard, 0, 5)
{
	/* From the appendix of RFC 1319. */
	static const char *const vectors[][2] = {
		{"", "8350e5a3e24c153df2275c9f80692773"},
		{"a", "32ec01ec4a6dac72c0ab96fb34c0b5d1"},
		{"abc", "da853b0d3f88d99b30283a69e6ded6bb"},
		{"message digest", "ab4f496bfb2a530b219ff33031fe06b0"},
		{"abcdefghijklmnopqrstuvwxyz", "4e8ddff3650292ab5a4108c3aa47940b"},
	};
	uint8_t digest[INTEGRITY_DIGEST_BYTES];
	char text[33];

	integrity_md2(vectors[_i][0], strlen(vectors[_i][0]), digest);
	hex(digest, text);
	ck_assert_str_eq(text, vectors[_i][1]);
}

static const struct integrity_facts known_facts = {
	.driver_version = 13000,
	.version = 13002,
	.pid = 1234,
	.thread = 0x11223344,
	.runtime_table = 0x1000,
	.integrity_table = 0x2000,
	.integrity_function = 0x3000,
	.seconds = 1700000000,
};

TEST(tables, integrity_matches_a_known_answer)
{
	struct integrity_device device = {.domain = 0, .bus = 0x1b, .device = 0};
	uint8_t digest[INTEGRITY_DIGEST_BYTES];
	char text[33];

	memset(device.uuid, 0x11, sizeof(device.uuid));
	integrity_answer(&known_facts, &device, 1, digest);
	hex(digest, text);
	ck_assert_str_eq(text, "619c26336bb9ddbcdb1f3bd3eff805e0");
	device.bus++;
	integrity_answer(&known_facts, &device, 1, digest);
	hex(digest, text);
	ck_assert_str_ne(text, "619c26336bb9ddbcdb1f3bd3eff805e0");
}

TEST(tables, integrity_has_fixed_answers)
{
	static const uint64_t expected[2][2] = {
		{UINT64_C(0x3341181C03CB675C), UINT64_C(0x8ED383AA1F4CD1E8)},
		{UINT64_C(0x1841181C03CB675C), UINT64_C(0x8ED383AA1F4CD1E8)},
	};
	struct integrity_facts facts = known_facts;
	uint8_t digest[INTEGRITY_DIGEST_BYTES];

	for (uint32_t digit = 0; digit < 2; digit++) {
		facts.version = 13010 + digit;
		integrity_answer(&facts, NULL, 0, digest);
		ck_assert_mem_eq(digest, expected[digit], sizeof(digest));
	}
}

/*
 * The unnamed tables
 */

typedef CUresult any_function(uintptr_t, uintptr_t, uintptr_t, uintptr_t);

/* A table by its UUID in text; NULL when there is none. */
static const void *const *table_by(const char *text)
{
	const void *table = NULL;
	CUuuid id;

	for (int i = 0; i < 16; i++) {
		unsigned int byte;

		ck_assert_int_eq(sscanf(text + 2 * i, "%2x", &byte), 1);
		id.bytes[i] = (char)byte;
	}
	return cuGetExportTable(&table, &id) == CUDA_SUCCESS ? table : NULL;
}

static CUresult call(const void *slot, uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d)
{
	any_function *function;

	memcpy(&function, &slot, sizeof(function));
	return function(a, b, c, d);
}

#define RUNTIME_TABLE	    "6bd5fb6c5bf4e74a8987d93912fd9df9"
#define HOOKS_TABLE	    "a094798c2e742e7493f20800200c0a66"
#define THREAD_TABLE	    "42d85a8123f6cb478298f6e78a3aecdc"
#define STORAGE_TABLE	    "c693336e1121df11a8c368f355d89593"
#define CHECKS_TABLE	    "263e88607cd2614392f6bbd5006dfa7e"
#define INTEGRITY_TABLE	    "d4082055bde6704b8d34ba123c66e1f2"
#define TOOLS_CONTEXT_TABLE "21318c60971432488ca641ff7324c8f2"
#define TOOLS_MODULE_TABLE  "6e163fbeb958444d835ce182aff1991e"
#define TOPOLOGY_TABLE	    "1734dc26800d47458726c0f1e7dd8bca"
#define UNNAMED_69_TABLE    "69a28e9f24498b47b030c5da330ea4e9"
#define UNNAMED_DA_TABLE    "da9151d33ae6cc41a5c04f26d533e328"

static const struct {
	const char *uuid;
	size_t bytes;
} sized_tables[] = {
	{RUNTIME_TABLE, 104},
	{HOOKS_TABLE, 56},
	{THREAD_TABLE, 24},
	{CHECKS_TABLE, 120},
	{INTEGRITY_TABLE, 24},
	{TOOLS_CONTEXT_TABLE, 744},
	{TOOLS_MODULE_TABLE, 64},
	{TOPOLOGY_TABLE, 136},
	{UNNAMED_69_TABLE, 272},
	{UNNAMED_DA_TABLE, 56},
};

TEST_LOOP(tables, tables_say_their_size_and_have_no_holes, 0, COUNT(sized_tables))
{
	const void *const *table = table_by(sized_tables[_i].uuid);

	ck_assert_ptr_nonnull(table);
	ck_assert_ptr_eq(table, table_by(sized_tables[_i].uuid));
	ck_assert_uint_eq((uintptr_t)table[0], sized_tables[_i].bytes);
	for (size_t i = 1; i < sized_tables[_i].bytes / sizeof(void *); i++)
		ck_assert_ptr_nonnull(table[i]);
}

TEST(tables, the_shim_is_recognised_before_anything_else)
{
	const CUuuid id = {FRMPS_SHIM_UUID_BYTES};
	const void *table = NULL;

	ck_assert_int_eq(cuGetExportTable(&table, &id), CUDA_SUCCESS);
	ck_assert_ptr_nonnull(table);
}

TEST(tables, unnamed_tables_refuse)
{
	const void *const *table;

	setenv("FRMPS_LOG", "off", 1);
	table = table_by(TOPOLOGY_TABLE);
	ck_assert_int_eq(call(table[4], 0, 0, 0, 0), CUDA_ERROR_NOT_SUPPORTED);
	table = table_by(UNNAMED_69_TABLE);
	ck_assert_int_eq(call(table[33], 0, 0, 0, 0), CUDA_ERROR_NOT_SUPPORTED);
	table = table_by(UNNAMED_DA_TABLE);
	ck_assert_int_eq(call(table[6], 0, 0, 0, 0), CUDA_ERROR_NOT_SUPPORTED);
}

static void ask_unknown_tables(void)
{
	for (int i = 0; i < 2; i++) {
		ck_assert_ptr_null(table_by("00112233445566778899aabbccddeeff"));
		ck_assert_ptr_null(table_by("f8cff95121468b4eb9e2fb469e7c0dd9"));
		ck_assert_ptr_null(table_by("ff112233445566778899aabbccddeeff"));
		ck_assert_ptr_null(table_by("2c8e0ad80710ab4e90dd54719fe5f74b"));
	}
}

TEST(tables, unknown_tables_are_refused_and_mentioned_once)
{
	unsetenv("FRMPS_LOG");
	ck_assert_str_eq(stderr_of(ask_unknown_tables),
		"frmps: export table 00112233445566778899aabbccddeeff is not supported\n"
		"frmps: export table ff112233445566778899aabbccddeeff is not supported\n"
		"frmps: a profiler (CUPTI) finds nothing to attach to: it would see no kernels of a program "
		"that goes through the service; profile without frmps-run\n");
	ck_assert_int_eq(cuGetExportTable(NULL, NULL), CUDA_ERROR_INVALID_VALUE);
}

TEST(tables, primary_handle_is_given_without_a_current_context)
{
	const void *const *table = table_by(RUNTIME_TABLE);
	CUcontext context = NULL;

	ck_assert_int_eq(call(table[2], (uintptr_t)&context, 0, 0, 0), CUDA_ERROR_NOT_INITIALIZED);
	fake_devices = 1;
	ck_assert_int_eq(call(table[2], (uintptr_t)&context, 0, 0, 0), CUDA_SUCCESS);
	ck_assert_ptr_eq(context, FAKE_PRIMARY);
	ck_assert_int_eq(call(table[2], (uintptr_t)&context, 1, 0, 0), CUDA_ERROR_INVALID_DEVICE);
	ck_assert_ptr_null(fake_current);
}

TEST(tables, no_tool_is_attached)
{
	const void *const *table = table_by(HOOKS_TABLE);
	static const int slots[] = {2, 6};
	static const size_t counts[] = {1024, 14};

	for (int s = 0; s < 2; s++) {
		const uint8_t *bytes = NULL;
		size_t count = 0;

		call(table[slots[s]], (uintptr_t)&bytes, (uintptr_t)&count, 0, 0);
		ck_assert_uint_eq(count, counts[s]);
		for (size_t i = 0; i < count * sizeof(uint64_t); i++)
			ck_assert_uint_eq(bytes[i], 0);
	}
}

TEST(tables, thread_table_knows_the_current_context)
{
	const void *const *table = table_by(THREAD_TABLE);
	CUcontext context = FAKE_STALE;

	ck_assert_int_ne(call(table[2], (uintptr_t)&context, 0, 0, 0), CUDA_SUCCESS);
	ck_assert_ptr_null(context);
	fake_current = FAKE_OTHER;
	ck_assert_int_eq(call(table[2], (uintptr_t)&context, 0, 0, 0), CUDA_SUCCESS);
	ck_assert_ptr_eq(context, FAKE_OTHER);
}

TEST(tables, context_checks_find_green_contexts)
{
	const void *const *table = table_by(CHECKS_TABLE);
	uint32_t kind = 5;
	CUcontext primary = FAKE_OTHER;

	ck_assert_int_eq(call(table[2], (uintptr_t)FAKE_PRIMARY, (uintptr_t)&kind, (uintptr_t)&primary, 0),
		CUDA_SUCCESS);
	ck_assert_uint_eq(kind, 0);
	ck_assert_ptr_null(primary);
	ck_assert_int_eq(call(table[2], (uintptr_t)FAKE_GREEN, (uintptr_t)&kind, (uintptr_t)&primary, 0),
		CUDA_SUCCESS);
	ck_assert_uint_eq(kind, 1);
	ck_assert_ptr_eq(primary, FAKE_PRIMARY);
	ck_assert_int_eq(call(table[3], 0, 0, 0, 0), CUDA_SUCCESS);
}

/* The question as the runtime puts it, answered a second time here from what a runtime knows. */
TEST(tables, integrity_table_answers_for_this_process)
{
	const void *const *runtime = table_by(RUNTIME_TABLE);
	const void *const *table = table_by(INTEGRITY_TABLE);
	struct integrity_device devices[2] = {{.bus = 0x1b}, {.bus = 0x1c}};
	struct integrity_facts facts = {
		.driver_version = CUDA_ABI_VERSION,
		.version = 13002,
		.pid = (uint32_t)getpid(),
		.thread = (uint32_t)(uintptr_t)pthread_self(),
		.runtime_table = (uintptr_t)runtime,
		.integrity_table = (uintptr_t)table,
		.integrity_function = (uintptr_t)table[1],
		.seconds = 1700000001,
	};
	uint8_t expected[INTEGRITY_DIGEST_BYTES], found[INTEGRITY_DIGEST_BYTES];

	memset(devices[0].uuid, 0x11, 16);
	memset(devices[1].uuid, 0x12, 16);
	fake_devices = 2;
	integrity_answer(&facts, devices, 2, expected);
	ck_assert_int_eq(call(table[1], facts.version, facts.seconds, (uintptr_t)found, 0), CUDA_SUCCESS);
	ck_assert_mem_eq(found, expected, sizeof(found));
}

TEST(tables, tools_number_contexts_and_streams)
{
	const void *const *table = table_by(TOOLS_CONTEXT_TABLE);
	uint64_t first = 0, second = 0;
	void *token = NULL;

	ck_assert_int_eq(call(table[4], 0, (uintptr_t)&first, 0, 0), CUDA_ERROR_INVALID_CONTEXT);
	ck_assert_int_eq(call(table[4], (uintptr_t)FAKE_STALE, (uintptr_t)&first, 0, 0),
		CUDA_ERROR_CONTEXT_IS_DESTROYED);
	ck_assert_int_eq(call(table[4], (uintptr_t)FAKE_PRIMARY, (uintptr_t)&first, 0, 0), CUDA_SUCCESS);
	fake_current = FAKE_OTHER;
	ck_assert_int_eq(call(table[4], 0, (uintptr_t)&second, 0, 0), CUDA_SUCCESS);
	ck_assert_uint_ne(first, second);

	ck_assert_int_eq(call(table[51], (uintptr_t)FAKE_PRIMARY, 7, (uintptr_t)&token, 0), CUDA_SUCCESS);
	ck_assert_int_eq(call(table[39], (uintptr_t)FAKE_PRIMARY, (uintptr_t)token, (uintptr_t)&first, 0),
		CUDA_SUCCESS);
	ck_assert_uint_eq(first, 507);
	ck_assert_int_eq(call(table[51], (uintptr_t)FAKE_PRIMARY, 1000, (uintptr_t)&token, 0),
		CUDA_ERROR_INVALID_HANDLE);
}

static void count_function(void *user, CUfunction function)
{
	ck_assert_uint_eq((uintptr_t)function, 0x5000 + (uintptr_t)(*(int *)user)++);
}

TEST(tables, tools_walk_the_functions_of_a_module)
{
	const void *const *table = table_by(TOOLS_MODULE_TABLE);
	int (*walk)(CUcontext, CUmodule, void (*)(void *, CUfunction), void *);
	int calls = 0;

	memcpy(&walk, &table[7], sizeof(walk));
	ck_assert_int_eq(walk(NULL, FAKE_MODULE, count_function, &calls), FAKE_MODULE_FUNCTIONS);
	ck_assert_int_eq(calls, FAKE_MODULE_FUNCTIONS);
	ck_assert_int_eq(walk(NULL, (CUmodule)0x4444, count_function, &calls), 0);
	ck_assert_int_eq(calls, FAKE_MODULE_FUNCTIONS);
}

/*
 * Context-local storage
 */

#define KEY(n)	 ((void *)(uintptr_t)(0x100 + (n)))
#define VALUE(n) ((void *)(uintptr_t)(0x9000 + (n)))

TEST(storage, storage_is_per_context)
{
	const void *const *table = table_by(STORAGE_TABLE);
	void *value = NULL;

	/* Nothing current, nothing stored: the runtime's way to find out that it must bind a
	 * context. */
	ck_assert_int_eq(
		call(table[2], (uintptr_t)&value, 0, (uintptr_t)KEY(1), 0), CUDA_ERROR_INVALID_HANDLE);
	ck_assert_int_eq(
		call(table[0], 0, (uintptr_t)KEY(1), (uintptr_t)VALUE(1), 0), CUDA_ERROR_INVALID_HANDLE);

	fake_current = FAKE_PRIMARY;
	ck_assert_int_eq(
		call(table[2], (uintptr_t)&value, 0, (uintptr_t)KEY(1), 0), CUDA_ERROR_INVALID_HANDLE);
	ck_assert_int_eq(call(table[0], 0, (uintptr_t)KEY(1), (uintptr_t)VALUE(1), 0), CUDA_SUCCESS);
	ck_assert_int_eq(call(table[0], (uintptr_t)FAKE_OTHER, (uintptr_t)KEY(1), (uintptr_t)VALUE(2), 0),
		CUDA_SUCCESS);
	ck_assert_int_eq(call(table[2], (uintptr_t)&value, 0, (uintptr_t)KEY(1), 0), CUDA_SUCCESS);
	ck_assert_ptr_eq(value, VALUE(1));
	ck_assert_int_eq(
		call(table[2], (uintptr_t)&value, (uintptr_t)FAKE_OTHER, (uintptr_t)KEY(1), 0), CUDA_SUCCESS);
	ck_assert_ptr_eq(value, VALUE(2));
	ck_assert_int_eq(
		call(table[2], (uintptr_t)&value, (uintptr_t)-1, (uintptr_t)KEY(1), 0), CUDA_SUCCESS);
	ck_assert_ptr_eq(value, VALUE(1));
	ck_assert_int_eq(call(table[2], (uintptr_t)&value, (uintptr_t)FAKE_STALE, (uintptr_t)KEY(1), 0),
		CUDA_ERROR_INVALID_HANDLE);

	ck_assert_int_eq(call(table[1], 0, (uintptr_t)KEY(1), 0, 0), CUDA_SUCCESS);
	ck_assert_int_eq(
		call(table[2], (uintptr_t)&value, 0, (uintptr_t)KEY(1), 0), CUDA_ERROR_INVALID_HANDLE);
	ck_assert_int_eq(call(table[1], 0, (uintptr_t)KEY(1), 0, 0), CUDA_SUCCESS);
	ck_assert_int_eq(
		call(table[2], (uintptr_t)&value, (uintptr_t)FAKE_OTHER, (uintptr_t)KEY(1), 0), CUDA_SUCCESS);
}

TEST(storage, map_holds_more_keys_than_one_block)
{
	enum { KEYS = 5 * CLS_BLOCK_ENTRIES + 3 };
	struct cls_map map = CLS_MAP_INIT;
	void *value;

	for (int i = 0; i < KEYS; i++)
		ck_assert_int_eq(cls_map_put(&map, KEY(i), VALUE(i), NULL), CUDA_SUCCESS);
	for (int i = 0; i < KEYS; i += 2)
		cls_map_delete(&map, KEY(i));
	for (int i = 0; i < KEYS; i++) {
		CUresult result = cls_map_get(&map, KEY(i), &value);

		ck_assert_int_eq(result, i % 2 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE);
		if (i % 2)
			ck_assert_ptr_eq(value, VALUE(i));
	}
	/* Replaced in place, and freed entries used again. */
	ck_assert_int_eq(cls_map_put(&map, KEY(1), VALUE(77), NULL), CUDA_SUCCESS);
	ck_assert_int_eq(cls_map_put(&map, KEY(1000), VALUE(78), NULL), CUDA_SUCCESS);
	ck_assert_int_eq(cls_map_get(&map, KEY(1), &value), CUDA_SUCCESS);
	ck_assert_ptr_eq(value, VALUE(77));
	ck_assert_int_eq(cls_map_put(&map, NULL, VALUE(1), NULL), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cls_map_get(&map, NULL, &value), CUDA_ERROR_INVALID_HANDLE);
	cls_map_deinit(&map);
}

static struct cls_map destructor_map = CLS_MAP_INIT;
static int destructors_run;

static void destructor(CUcontext context, void *key, void *value)
{
	void *found;

	ck_assert_ptr_eq(context, FAKE_PRIMARY);
	ck_assert_uint_eq((uintptr_t)value - (uintptr_t)key, (uintptr_t)VALUE(0) - (uintptr_t)KEY(0));
	/* The entry is gone already, and the map may be used from here. */
	ck_assert_int_eq(cls_map_get(&destructor_map, key, &found), CUDA_ERROR_INVALID_HANDLE);
	cls_map_delete(&destructor_map, key);
	destructors_run++;
}

TEST(storage, clearing_runs_each_destructor_once)
{
	void *value;

	for (int i = 0; i < 20; i++)
		ck_assert_int_eq(cls_map_put(&destructor_map, KEY(i), VALUE(i), i < 15 ? destructor : NULL),
			CUDA_SUCCESS);
	cls_map_delete(&destructor_map, KEY(0));
	cls_map_clear(&destructor_map, FAKE_PRIMARY);
	ck_assert_int_eq(destructors_run, 14);
	for (int i = 0; i < 20; i++)
		ck_assert_int_eq(cls_map_get(&destructor_map, KEY(i), &value), CUDA_ERROR_INVALID_HANDLE);
	cls_map_clear(&destructor_map, FAKE_PRIMARY);
	ck_assert_int_eq(destructors_run, 14);
	cls_map_deinit(&destructor_map);
}

/* One entry changes hands between two keys while others look: nobody may see one key's value under
 * the other.
 */
static struct cls_map shared_map = CLS_MAP_INIT;
static atomic_bool writer_done;

static void *read_while_written(void *mismatches)
{
	while (!atomic_load(&writer_done)) {
		for (int i = 0; i < 3; i++) {
			void *value;

			if (cls_map_get(&shared_map, KEY(i), &value) == CUDA_SUCCESS && value != VALUE(i))
				++*(int *)mismatches;
			else if (i == 0 && cls_map_get(&shared_map, KEY(0), &value) != CUDA_SUCCESS)
				++*(int *)mismatches;
		}
	}
	return NULL;
}

TEST(storage, readers_never_see_a_mixed_entry)
{
	pthread_t readers[2];
	int mismatches[2] = {0};

	cls_map_put(&shared_map, KEY(0), VALUE(0), NULL);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_create(&readers[i], NULL, read_while_written, &mismatches[i]), 0);
	for (int round = 0; round < 1000000; round++) {
		int n = 1 + round % 2;

		cls_map_put(&shared_map, KEY(n), VALUE(n), NULL);
		cls_map_delete(&shared_map, KEY(n));
	}
	atomic_store(&writer_done, true);
	for (int i = 0; i < 2; i++) {
		pthread_join(readers[i], NULL);
		ck_assert_int_eq(mismatches[i], 0);
	}
	cls_map_deinit(&shared_map);
}

static void lookup_case(Suite *suite)
{
	TCase *tcase = suite_case(suite, "lookup");

	suite_add(tcase, "lookup");
}

static void words_case(Suite *suite)
{
	TCase *tcase = suite_case(suite, "words");

	suite_add(tcase, "words");
}

static void tables_case(Suite *suite)
{
	TCase *tcase = suite_case(suite, "tables");

	suite_add(tcase, "tables");
}

static void storage_case(Suite *suite)
{
	TCase *tcase = suite_case(suite, "storage");

	suite_add(tcase, "storage");
}

int main(void)
{
	Suite *suite = suite_create("boot");

	lookup_case(suite);
	words_case(suite);
	tables_case(suite);
	storage_case(suite);
	return suite_run(suite);
}
