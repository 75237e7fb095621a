// What our NVML reads of the service's answer: all of it, or nothing.

#include "client/nvml/question.h"

#include <stdio.h>
#include <string.h>

#include "tests/lib/suite.h"

#define BEFORE                                                                                               \
	"{\"name\":\"H\",\"uuid\":\"GPU-1\",\"driver_version\":13000,\"major\":9,\"minor\":0,"               \
	"\"total_bytes\":18446744073709551615,\"used_bytes\":5,"

static struct seen seen;

TEST(question, a_document_is_taken_apart)
{
	ck_assert_int_eq(
		question_parse(BEFORE "\"processes\":[{\"pid\":7,\"memory_bytes\":1},{\"pid\":8,"
				      "\"memory_bytes\":2}],\"peers\":\"00070\",\"pci\":\"0000:01:02.0\"}",
			&seen),
		0);
	ck_assert_str_eq(seen.name, "H");
	ck_assert_str_eq(seen.uuid, "GPU-1");
	ck_assert_str_eq(seen.pci, "0000:01:02.0");
	ck_assert_uint_eq(seen.driver_version, 13000);
	ck_assert_uint_eq(seen.major, 9);
	ck_assert_uint_eq(seen.total_bytes, UINT64_MAX);
	ck_assert_uint_eq(seen.used_bytes, 5);
	ck_assert_uint_eq(seen.peers[0], 0);
	ck_assert_uint_eq(seen.peers[1], 7);
	ck_assert_uint_eq(seen.peers[2], 0);
	ck_assert_uint_eq(seen.process_count, 2);
	ck_assert_uint_eq(seen.processes[1].pid, 8);
	ck_assert_uint_eq(seen.processes[1].bytes, 2);
}

TEST_LOOP(question, a_wrong_one_is_refused, 0, 11)
{
	static const char *const wrong[] = {
		"",
		"{}",
		BEFORE "\"processes\":[]}",
		BEFORE "\"processes\":[,\"pci\":\"0\"",
		BEFORE "\"processes\":[{\"pid\":7}],\"pci\":\"0\"}",
		BEFORE "\"processes\":[{\"pid\":-7,\"memory_bytes\":1}],\"pci\":\"0\"}",
		BEFORE "\"processes\":[{\"pid\":4294967296,\"memory_bytes\":1}],\"pci\":\"0\"}",
		BEFORE "\"processes\":[],\"pci\":0}",
		BEFORE "\"processes\":[],\"pci\":\"0",
		BEFORE "\"processes\":[],\"pci\":\"an address that no bus of any machine has\"}",
		"{\"name\":\"a \\\"total_bytes\\\":1",
	};

	ck_assert_int_eq(question_parse(wrong[_i], &seen), -1);
	if (_i == 0)
		ck_assert_uint_eq(sizeof(wrong) / sizeof(wrong[0]), 11);
}

TEST(question, there_are_no_more_processes_than_fit)
{
	static char text[64 * SEEN_PROCESSES_MAX];
	size_t used = (size_t)snprintf(text, sizeof(text), BEFORE "\"pci\":\"0\",\"processes\":[");

	for (unsigned i = 0; i < SEEN_PROCESSES_MAX; i++)
		used += (size_t)snprintf(
			text + used, sizeof(text) - used, "%s{\"pid\":1,\"memory_bytes\":1}", i ? "," : "");
	snprintf(text + used, sizeof(text) - used, "]}");
	ck_assert_int_eq(question_parse(text, &seen), 0);
	ck_assert_uint_eq(seen.process_count, SEEN_PROCESSES_MAX);
	snprintf(text + used, sizeof(text) - used, ",{\"pid\":1,\"memory_bytes\":1}]}");
	ck_assert_int_eq(question_parse(text, &seen), -1);
}

int main(void)
{
	Suite *suite = suite_create("question");
	TCase *cases = suite_case(suite, "question");

	suite_add(cases, "question");
	return suite_run(suite);
}
