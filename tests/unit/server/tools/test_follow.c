// frmpsctl events: what is printed of the service's answers, and what is asked next. The service is
// a list of answers.

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/tools/ask.h"
#include "server/tools/command.h"
#include "server/tools/events.h"
#include "tests/lib/suite.h"

#define EVENT(number, more)                                                                                  \
	"{\"number\":" number ",\"time_ms\":1700000000123,\"kind\":\"lost\"," more "\"text\":\"it ended\"}"
#define DOCUMENT(latest, noted, events) "{\"latest\":" latest ",\"noted\":" noted ",\"events\":[" events "]}"

static const struct answer {
	const char *after; /* what is to be asked; NULL: nothing */
	int r;
	const char *json;
} * answers;
static unsigned slept;

int ask_devices(const char *path, bool quick, struct ask_devices *ret_devices)
{
	(void)path;
	(void)quick;
	*ret_devices = (struct ask_devices){.count = 1};
	return 0;
}

int ask_with(const char *path, const char *command, const struct wire_names *arguments, unsigned seconds,
	char **ret_json, char *ret_text, size_t text_size)
{
	const struct answer *answer = answers++;

	ck_assert_str_eq(path, "/socket");
	ck_assert_str_eq(command, "events");
	ck_assert_uint_eq(arguments->count, answer->after != NULL);
	if (answer->after)
		ck_assert_str_eq(arguments->at[0], answer->after);
	/* What is still to come is waited for. */
	ck_assert_uint_eq(seconds, answer->after ? 0 : ASK_SECONDS);
	if (answer->r)
		snprintf(ret_text, text_size, "no answer");
	else
		*ret_json = strdup(answer->json);
	return answer->r;
}

unsigned sleep(unsigned seconds)
{
	slept += seconds;
	return 0;
}

/* Return: what is printed, the caller's */
static char *show(const struct answer *list, bool follow, bool json, int expected)
{
	const struct call call = {.program = "frmpsctl", .path = "/socket", .follow = follow, .json = json};
	char *text = NULL;
	size_t length;
	FILE *out = open_memstream(&text, &length);

	answers = list;
	slept = 0;
	ck_assert_int_eq(events_show(&call, out), expected);
	fclose(out);
	return text;
}

static void set_up(void)
{
	setenv("TZ", "UTC", 1);
}

TEST(follow, events_are_lines)
{
	static const struct answer list[] = {
		{NULL, 0, DOCUMENT("9", "9", EVENT("8", "\"uid\":null,") "," EVENT("9", "\"uid\":1000,"))}};
	char *text = show(list, false, false, 0);

	ck_assert_str_eq(text, "2023-11-14 22:13:20.123  lost        it ended\n"
			       "2023-11-14 22:13:20.123  lost        user 1000  it ended\n");
	free(text);
}

TEST(follow, nothing_has_happened)
{
	static const struct answer list[] = {{NULL, 0, DOCUMENT("0", "0", "")}};
	char *text = show(list, false, false, 0);

	ck_assert_str_eq(text, "no events since the service started\n");
	free(text);
	text = show(list, false, true, 0);
	ck_assert_ptr_eq(strstr(text, "{\n  \"latest\": 0"), text);
	free(text);
}

/* The first answer may begin anywhere; later ones follow it or leave something out. */
TEST(follow, what_was_missed_is_said)
{
	static const struct answer list[] = {{NULL, 0, DOCUMENT("9", "9", EVENT("9", ""))},
		{"9", 0, DOCUMENT("10", "10", EVENT("10", ""))},
		{"10", 0, DOCUMENT("15", "15", EVENT("14", "") "," EVENT("15", ""))},
		{"15", -ECONNREFUSED, NULL}};
	char *text = show(list, true, true, 69);

	ck_assert_str_eq(text, EVENT("9", "") "\n" EVENT("10", "") "\n{\"missed\":3}\n" EVENT(
				       "14", "") "\n" EVENT("15", "") "\n");
	free(text);
	text = show(list, true, false, 69);
	ck_assert_ptr_nonnull(
		strstr(text, "\n3 events are missing here: the service has kept later ones only\n"));
	ck_assert_uint_eq(slept, 0);
	free(text);
}

TEST(follow, a_daemon_that_is_replaced_is_asked_again)
{
	static const struct answer list[] = {{NULL, 0, DOCUMENT("0", "0", "")}, {"0", -ECONNRESET, NULL},
		{"0", 0, DOCUMENT("1", "1", EVENT("1", ""))}, {"1", ASK_E_REFUSED, NULL}};
	char *text = show(list, true, true, 1);

	ck_assert_str_eq(text, EVENT("1", "") "\n");
	ck_assert_uint_eq(slept, 1);
	free(text);
}

TEST(follow, no_service_is_no_answer)
{
	static const struct answer list[] = {{NULL, -ECONNRESET, NULL}};
	char *text = show(list, true, false, 69);

	ck_assert_str_eq(text, "");
	free(text);
}

int main(void)
{
	Suite *suite = suite_create("follow");
	TCase *tests = suite_case(suite, "follow");

	tcase_add_checked_fixture(tests, set_up, NULL);
	suite_add(tests, "follow");
	return suite_run(suite);
}
