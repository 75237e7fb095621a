// Lines of the log, as they arrive on standard error.

#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "server/log.h"
#include "tests/lib/suite.h"

static int ends[2], kept;

static void setup(void)
{
	kept = dup(STDERR_FILENO);
	ck_assert_int_eq(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
	ck_assert_int_ge(dup2(ends[1], STDERR_FILENO), 0);
	unsetenv("JOURNAL_STREAM");
}

static void teardown(void)
{
	dup2(kept, STDERR_FILENO);
	close(kept);
	close(ends[0]);
	close(ends[1]);
}

static const char *written(void)
{
	static char text[8192];
	ssize_t length = read(ends[0], text, sizeof(text) - 1);

	text[length < 0 ? 0 : length] = '\0';
	return text;
}

static unsigned count_lines(const char *text)
{
	unsigned count = 0;

	for (; *text; text++)
		count += *text == '\n';
	return count;
}

TEST(log, what_is_logged_cannot_forge_a_line)
{
	const char *text;

	log_init(LOG_LEVEL_INFO, "frmps");
	log_warning("fault in kernel %s", "k\n<3>frmps: all is lost\r\x1b[2J\x7f, \xc3\xa4");
	text = written();
	ck_assert_ptr_nonnull(strstr(text, "kernel k?<3>frmps: all is lost??[2J?, \xc3\xa4\n"));
	ck_assert_ptr_eq(strchr(text, '\n'), text + strlen(text) - 1);
}

/* Those of ISO 6429 that are a byte or, in UTF-8, two: \x9b is what ESC [ is. */
TEST(log, what_is_no_text_is_cleaned)
{
	static const char *const rows[][2] = {
		{"a\xc2\x9bm\xc2\x9d\xc2\x85", "a??m????"},
		{"\x9bm\x80\x9f\xa0\xff", "?m????"},
		{"\xc2\xa0\xc3\x9b\xe2\x82\xac\xf0\x9f\x98\x80",
			"\xc2\xa0\xc3\x9b\xe2\x82\xac\xf0\x9f\x98\x80"},
		{"\xc3\x9b\x9b", "\xc3\x9b?"},
		/* Longer than need be. */
		{"\xe0\x82\x9b\xf0\x80\x82\x9b\xc0\x9b", "?????????"},
		/* Cut short. */
		{"\xe2\x82\xf0\x9f\x98", "?????"},
		{"\xe2", "?"},
		{"\xe2"
		 "a",
			"?a"},
		/* Surrogates, and beyond the last character. */
		{"\xed\xa0\x80\xed\x9f\xbf\xf4\x90\x80\x80", "???\xed\x9f\xbf????"},
		/* The direction of writing, a separator of lines. */
		{"a\xe2\x80\xae"
		 "b\xe2\x81\xa6"
		 "c\xe2\x80\xa8",
			"a???b???c???"},
	};
	char text[32];

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		json_t *json;

		strcpy(text, rows[i][0]);
		log_clean(text);
		ck_assert_msg(!strcmp(text, rows[i][1]), "row %zu: %s", i, text);
		json = json_string(text);
		ck_assert_msg(json != NULL, "row %zu is not fit for JSON", i);
		json_decref(json);
	}
}

TEST(log, a_long_line_is_cut)
{
	char long_text[4000];
	const char *text;

	memset(long_text, 'x', sizeof(long_text) - 1);
	long_text[sizeof(long_text) - 1] = '\0';
	log_init(LOG_LEVEL_INFO, "frmps");
	log_error("%s", long_text);
	text = written();
	ck_assert_uint_lt(strlen(text), sizeof(long_text));
	ck_assert_str_eq(text + strlen(text) - 2, "x\n");
	log_debug("not so urgent");
	ck_assert_str_eq(written(), "");
}

/* Programs of a desktop session inherit the variable of a service that they are not. */
TEST(log, the_journal_is_known_by_its_file)
{
	struct stat status;
	char stream[64];

	setenv("JOURNAL_STREAM", "1:2", 1);
	log_init(LOG_LEVEL_INFO, "frmps");
	log_info("for a terminal");
	ck_assert_ptr_null(strstr(written(), "<6>"));
	ck_assert_int_eq(fstat(STDERR_FILENO, &status), 0);
	snprintf(stream, sizeof(stream), "%llu:%llu", (unsigned long long)status.st_dev,
		(unsigned long long)status.st_ino);
	setenv("JOURNAL_STREAM", stream, 1);
	log_init(LOG_LEVEL_INFO, "frmps");
	log_info("for the journal");
	ck_assert_str_eq(written(), "<6>frmps: for the journal\n");
}

TEST(log, a_process_whose_lines_are_relayed_writes_priority_and_text)
{
	log_init(LOG_LEVEL_INFO, "frmps executor");
	log_be_relayed();
	log_warning("a kernel\nfaults");
	ck_assert_str_eq(written(), "<4>a kernel?faults\n");
}

TEST(log, a_relayed_line_is_another_process_s)
{
	const struct log_field fields[] = {{"USER", "1001"}};
	const char *text;

	log_init(LOG_LEVEL_INFO, "frmps");
	log_relay("frmps executor", 77, fields, 1, "<4>a kernel faults");
	text = written();
	ck_assert_msg(strstr(text, " frmps executor[77] warning: a kernel faults\n") != NULL, "%s", text);
	/* Without a priority, and with what is none. */
	log_relay("frmps executor", 77, fields, 1, "free \x1b[2J text");
	text = written();
	ck_assert_msg(strstr(text, " frmps executor[77] info: free ?[2J text\n") != NULL, "%s", text);
	log_relay("frmps executor", 77, fields, 1, "<9>%s");
	text = written();
	ck_assert_msg(strstr(text, " frmps executor[77] info: <9>%s\n") != NULL, "%s", text);
	log_relay("frmps executor", 77, fields, 1, "<7>not so urgent");
	ck_assert_str_eq(written(), "");
}

/* Standard error is a stream that only the journal's side, ends[0], reads. */
static void become_journal(const char *socket)
{
	struct stat status;
	char stream[64];

	close(ends[0]);
	close(ends[1]);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
	ck_assert_int_ge(dup2(ends[1], STDERR_FILENO), 0);
	ck_assert_int_eq(fcntl(ends[0], F_SETFL, O_NONBLOCK), 0);
	ck_assert_int_eq(fstat(STDERR_FILENO, &status), 0);
	snprintf(stream, sizeof(stream), "%llu:%llu", (unsigned long long)status.st_dev,
		(unsigned long long)status.st_ino);
	setenv("JOURNAL_STREAM", stream, 1);
	log_init(LOG_LEVEL_INFO, "frmps");
	log_set_journal(socket);
}

/* The journal's other socket. */
static int listen_at(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	return fd;
}

static const struct log_field fields[] = {
	{"EVENT", "lost"}, {"SESSION", NULL}, {"PROGRAM", "a\nPRIORITY=0\x1b["}};

static void log_lost(const char *text)
{
	log_event_fields(LOG_LEVEL_WARNING, fields, 3, "%s", text);
}

TEST(log, fields_are_the_journals)
{
	char path[] = "/tmp/frmps-log-XXXXXX", socket_path[64], text[8192] = "";
	int journal;

	ck_assert_ptr_nonnull(mkdtemp(path));
	snprintf(socket_path, sizeof(socket_path), "%s/socket", path);
	become_journal(socket_path);
	/* There is no such socket. */
	log_lost("it ended");
	ck_assert_str_eq(written(), "<4>frmps: it ended\n");
	journal = listen_at(socket_path);
	log_lost("it ended\n<0>all is lost");
	ck_assert_str_eq(written(), "");
	ck_assert_int_gt(recv(journal, text, sizeof(text) - 1, 0), 0);
	ck_assert_str_eq(text,
		"PRIORITY=4\nSYSLOG_IDENTIFIER=frmps-server\nMESSAGE=frmps: it ended?<0>all is "
		"lost\nFRMPS_EVENT=lost\nFRMPS_PROGRAM=a?PRIORITY=0?[\n");
	/* What has none is a line as before. */
	log_info("hello");
	ck_assert_str_eq(written(), "<6>frmps: hello\n");
	close(journal);
	/* Nobody is behind it any more. */
	log_lost("it ended");
	ck_assert_str_eq(written(), "<4>frmps: it ended\n");
	unlink(socket_path);
	rmdir(path);
}

TEST(log, a_field_that_does_not_fit_is_left_out)
{
	char path[] = "/tmp/frmps-log-XXXXXX", socket_path[64], text[8192] = "", program[8000];
	const struct log_field long_fields[] = {{"PROGRAM", program}, {"EVENT", "lost"}};
	int journal;

	memset(program, 'x', sizeof(program) - 1);
	program[sizeof(program) - 1] = '\0';
	ck_assert_ptr_nonnull(mkdtemp(path));
	snprintf(socket_path, sizeof(socket_path), "%s/socket", path);
	become_journal(socket_path);
	journal = listen_at(socket_path);
	log_event_fields(LOG_LEVEL_INFO, long_fields, 2, "hello");
	ck_assert_int_gt(recv(journal, text, sizeof(text) - 1, 0), 0);
	ck_assert_ptr_nonnull(strstr(text, "\nMESSAGE=frmps: hello\nFRMPS_EVENT=lost\n"));
	ck_assert_ptr_null(strstr(text, "xxx"));
	close(journal);
	unlink(socket_path);
	rmdir(path);
}

TEST(log, fields_are_left_out_elsewhere)
{
	log_init(LOG_LEVEL_INFO, "frmps");
	log_lost("it ended");
	ck_assert_ptr_nonnull(strstr(written(), "warning: it ended\n"));
}

/* Twice as much as a socket's buffer holds; this test ends only because nobody waits. */
TEST(log, a_journal_that_does_not_read_holds_nobody_up)
{
	char path[] = "/tmp/frmps-log-XXXXXX", socket_path[64], expected[160];
	const int rounds = 4096;
	unsigned taken = 0;
	const char *text;
	int journal;

	ck_assert_ptr_nonnull(mkdtemp(path));
	snprintf(socket_path, sizeof(socket_path), "%s/socket", path);
	become_journal(socket_path);
	journal = listen_at(socket_path);
	for (int i = 0; i < rounds; i++)
		log_lost("it ended");
	while (recv(journal, &(char){0}, 1, 0) > 0)
		taken++;
	while (*(text = written()))
		taken += count_lines(text);
	ck_assert_uint_lt(taken, rounds);
	close(journal);
	log_info("there is room again");
	snprintf(expected, sizeof(expected),
		"<4>frmps: %u lines are lost: there was no room for them\n<6>frmps: there is room again\n",
		rounds - taken);
	ck_assert_str_eq(written(), expected);
	unlink(socket_path);
	rmdir(path);
}

/* A terminal that is stopped, the pipe of a container. */
TEST(log, a_pipe_that_nobody_reads_holds_nobody_up)
{
	const int rounds = 4096;
	char expected[160];
	unsigned taken = 0;
	const char *text;

	ck_assert_int_eq(fcntl(STDERR_FILENO, F_SETFL, 0), 0);
	log_init(LOG_LEVEL_INFO, "frmps");
	for (int i = 0; i < rounds; i++)
		log_info("hello");
	while (*(text = written()))
		taken += count_lines(text);
	ck_assert_uint_gt(taken, 0);
	ck_assert_uint_lt(taken, rounds);
	log_info("there is room again");
	snprintf(expected, sizeof(expected), "%u lines are lost: there was no room for them\n",
		rounds - taken);
	text = written();
	ck_assert_ptr_nonnull(strstr(text, expected));
	ck_assert_ptr_nonnull(strstr(text, "there is room again\n"));
}

TEST(log, lines_for_a_full_disk_are_counted)
{
	int full = open("/dev/full", O_WRONLY | O_CLOEXEC);

	ck_assert_int_ge(full, 0);
	log_init(LOG_LEVEL_INFO, "frmps");
	log_set_descriptor(full);
	log_info("hello");
	log_set_descriptor(STDERR_FILENO);
	close(full);
	log_info("there is room again");
	ck_assert_ptr_nonnull(strstr(written(), "1 lines are lost: there was no room for them\n"));
}

int main(void)
{
	Suite *suite = suite_create("log");
	TCase *all = suite_case(suite, "log");

	tcase_add_checked_fixture(all, setup, teardown);
	suite_add(all, "log");
	return suite_run(suite);
}
