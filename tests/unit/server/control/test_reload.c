// The configuration file is read again while sessions are served.

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#include "protocol/cuda_abi.h"
#include "server/control/caller.h"
#include "server/session/domain.h"
#include "server/session/session.h"
#include "server/door/visitor.h"
#include "tests/lib/suite.h"
#include "tests/unit/server/fake_children.h"

static char path[] = "/tmp/frmps-reload-XXXXXX";
static struct fake *fake;
static struct fake_client client;
static int caller;

static void write_file(const char *text)
{
	FILE *file = fopen(path, "w");

	fprintf(file, "standbys = 1\nguard = off\nsocket = /tmp/x.sock\n%s", text);
	ck_assert_int_eq(fclose(file), 0);
}

static int connect_operator(uid_t uid)
{
	int pair[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
	visitor_new(&fake->daemon, pair[0]);
	TAILQ_LAST(&fake->daemon.visitors, visitor_list)->peer.uid = uid;
	return pair[1];
}

static void set_up(void)
{
	close(mkstemp(path));
	fake_with_records = true;
	fake = fake_new(1);
	strcpy(fake->config.socket, "/tmp/x.sock");
	fake->config.file = path;
	fake_boot(fake);
	fake_join(fake, &client, &fake->children[1], &fake->children[2]);
	caller = connect_operator(geteuid());
}

static void tear_down(void)
{
	close(caller);
	fake_leave(fake, &client);
	packet_close_fds(&fake->packet);
	fake_free(fake);
	unlink(path);
}

static void ask(void)
{
	struct wire_message admin = {.type = WIRE_ADMIN, .id = 3, .admin = {.command = "reload"}};

	fake_send(fake, caller, &admin, NULL, 0);
}

/* A thread reads the file. Return: the answer's code */
static int32_t hear(void)
{
	packet_close_fds(&fake->packet);
	while (packet_receive(caller, &fake->packet))
		uv_run(&fake->loop, UV_RUN_ONCE);
	ck_assert_int_eq(wire_decode(fake->packet.bytes, fake->packet.length, &fake->message), 0);
	ck_assert_int_eq(fake->message.type, WIRE_ADMIN_REPLY);
	return fake->message.admin_reply.code;
}

static void expect_answer(int32_t code, const char *answer)
{
	ask();
	ck_assert_int_eq(hear(), code);
	ck_assert_str_eq(fake->message.admin_reply.json, answer);
}

static const struct terms *terms(void)
{
	return &TAILQ_FIRST(&fake->daemon.sessions)->terms;
}

TEST(reload, limits_change_for_sessions_that_are_there)
{
	struct wire_message query = {.type = WIRE_QUERY_MEMORY};
	const uint64_t values[2] = {UINT64_C(30) << 30, UINT64_C(64) << 30};
	char section[64];

	snprintf(section, sizeof(section), "[user %u]\nmemory_limit = 8G\n",
		(unsigned)TAILQ_FIRST(&fake->daemon.sessions)->uid);
	write_file(section);
	ck_assert_uint_eq(terms()->memory_limit, 0);
	expect_answer(0, "{\"restart\":\"\"}");
	/* An executor that sleeps sees at once what has changed for it. */
	fake_serve(fake, &fake->children[1], WIRE_PING);
	fake_request(fake, &client, &query, -1);
	fake_expect(fake, fake->children[1].socket, WIRE_QUERY_MEMORY);
	fake_reply(fake, fake->children[1].socket, fake->message.id, 0, values, 2);
	fake_expect(fake, client.socket, WIRE_REPLY);
	ck_assert_uint_eq(fake->message.reply.values.at[1], UINT64_C(8) << 30);
	write_file("");
	expect_answer(0, "{\"restart\":\"\"}");
	ck_assert_uint_eq(terms()->memory_limit, 0);
}

/* Executors read them in the session's own region, where pauses are as well. */
TEST(reload, weights_and_classes_change_for_sessions_that_are_there)
{
	word32 *share = &TAILQ_FIRST(&fake->daemon.sessions)->view.server->share;
	char section[64];

	ck_assert_uint_eq(word_acquire(share), 0);
	session_pause(TAILQ_FIRST(&fake->daemon.sessions), true, true);
	snprintf(section, sizeof(section), "[user %u]\nweight = 300\nclass = offline\n",
		(unsigned)TAILQ_FIRST(&fake->daemon.sessions)->uid);
	write_file(section);
	expect_answer(0, "{\"restart\":\"\"}");
	ck_assert_uint_eq(word_acquire(share), 300 | SHM_SHARE_OFFLINE | SHM_SHARE_PAUSED);
	session_pause(TAILQ_FIRST(&fake->daemon.sessions), false, true);
	ck_assert_uint_eq(word_acquire(share), 300 | SHM_SHARE_OFFLINE);
	write_file("");
	expect_answer(0, "{\"restart\":\"\"}");
	ck_assert_uint_eq(word_acquire(share), 0);
}

#define LENT (SHM_SHARE_OFFLINE | SHM_SHARE_LENT)

static const struct {
	int percent;
	uint32_t granted; /* of a device with 132, in 15 units of 8 */
	const char *more; /* in the file */
	uint32_t bits;	  /* more of the share */
} caps[] = {{100, 132, "", 0}, {99, 120, "", 0}, {50, 64, "", 0}, {49, 64, "", 0}, {48, 56, "", 0},
	{25, 32, "", 0}, {12, 8, "", 0}, {1, 8, "", 0}, {100, 96, "class = offline\n", LENT},
	{99, 96, "class = offline\n", SHM_SHARE_OFFLINE}, {25, 32, "class = offline\n", SHM_SHARE_OFFLINE}};

/* As far as the device can give them; executors and the program read it, a weight beside it. What
 * online programs do not have for themselves an offline one has for certain. */
TEST_LOOP(reload, multiprocessors_change_for_sessions_that_are_there, 0, sizeof(caps) / sizeof(caps[0]))
{
	struct session *session = TAILQ_FIRST(&fake->daemon.sessions);
	struct backend_device *device = &fake->daemon.device;
	uint32_t granted = caps[_i].granted;
	char text[64];

	device->attributes[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT] = 132;
	snprintf(text, sizeof(text), "weight = 7\nsm_percent = %d\n%s", caps[_i].percent, caps[_i].more);
	write_file(text);
	/* One that cannot be asked to gives all. */
	expect_answer(0, "{\"restart\":\"\"}");
	ck_assert_uint_eq(session_sms(session), 132);
	ck_assert_uint_eq(
		word_acquire(&session->view.server->share), 7 | (caps[_i].bits & SHM_SHARE_OFFLINE));
	device->sm_granule = 8;
	device->sm_units = 15;
	expect_answer(0, "{\"restart\":\"\"}");
	ck_assert_uint_eq(session_sms(session), granted);
	ck_assert_uint_eq(word_acquire(&session->view.server->share),
		7 | caps[_i].bits | (granted == 132 ? 0 : granted << SHM_SHARE_SMS_SHIFT));
}

TEST(reload, a_file_that_is_wrong_changes_nothing)
{
	char answer[320];

	write_file("memory_limit = 5G\n");
	expect_answer(0, "{\"restart\":\"\"}");
	write_file("memory_limit = 6G\nnonsense = 1\n");
	snprintf(answer, sizeof(answer),
		"{\"reason\":\"%s:5: nonsense: no such key (frmps-server --help-config "
		"lists "
		"them)\"}",
		path);
	expect_answer(CUDA_ERROR_INVALID_VALUE, answer);
	ck_assert_uint_eq(terms()->memory_limit, UINT64_C(5) << 30);
	ck_assert_uint_eq(fake->daemon.rules.general.memory_limit, UINT64_C(5) << 30);
	/* Not in UTF-8. */
	write_file("memory_limit = f\xfcnf\nnonsense = 1\n");
	snprintf(answer, sizeof(answer),
		"{\"reason\":\"%s:4: memory_limit: \\\"f?nf\\\" is not a number of bytes (digits, then K, M, "
		"G or T)\\n%s:5: nonsense: no such key (frmps-server --help-config lists them)\"}",
		path, path);
	expect_answer(CUDA_ERROR_INVALID_VALUE, answer);
}

TEST(reload, a_guarantee_that_cannot_be_kept_changes_nothing)
{
	fake->daemon.device.total_bytes = UINT64_C(8) << 30;
	write_file("memory_guarantee = 2G\n");
	expect_answer(0, "{\"restart\":\"\"}");
	write_file("memory_guarantee = 9G\n");
	expect_answer(CUDA_ERROR_INVALID_VALUE,
		"{\"reason\":\"memory_guarantee: 9G are more than the device has, 8G: set it lower\"}");
	ck_assert_uint_eq(terms()->memory_guarantee, UINT64_C(2) << 30);
	/* Each of the two executors has half a GiB. */
	write_file("memory_guarantee = 7400M\n");
	expect_answer(CUDA_ERROR_INVALID_VALUE, "{\"reason\":\"memory_guarantee: what is served now would "
						"have 7400M, and there are 7G\"}");
	ck_assert_uint_eq(terms()->memory_guarantee, UINT64_C(2) << 30);
}

TEST(reload, a_device_of_no_use_changes_nothing)
{
	write_file("device_memory = 1G\n");
	expect_answer(CUDA_ERROR_INVALID_VALUE,
		"{\"reason\":\"device_memory: 1G leave nothing for a program beside executors and its guard: "
		"set it higher\"}");
	write_file("device_memory = 3G\nmemory_guarantee = 4G\n");
	expect_answer(CUDA_ERROR_INVALID_VALUE,
		"{\"reason\":\"memory_guarantee: 4G are more than the device has, 3G: set it lower\"}");
	ck_assert_uint_eq(fake->daemon.rules.general.device_memory, 0);
	/* Another device may be larger. */
	write_file("device_memory = 3G\n[device 1]\ndevice_memory = 8G\nmemory_guarantee = 4G\n");
	expect_answer(0, "{\"restart\":\"\"}");
	ck_assert_uint_eq(fake->daemon.rules.general.device_memory, UINT64_C(3) << 30);
}

/* The policy is to refuse: nobody ends so that another one gets what it is guaranteed. */
TEST(reload, a_guarantee_of_what_others_hold_changes_nothing)
{
	struct wire_message map = {.type = WIRE_MAP_MEMORY, .range = {client.window_base, 10 << 20, 0}};
	struct fake_client other;
	struct terms *others;

	fake->daemon.device.total_bytes = (UINT64_C(1) << 30) + (16 << 20);
	fake_join(fake, &other, &fake->children[1], &fake->children[2]);
	fake_session(fake, 1)->subject.uid = 4000000000;
	others = &fake_session(fake, 1)->terms;
	fake_request(fake, &client, &map, -1);
	fake_make_chunk(fake, &fake->children[0], 5);
	fake_serve(fake, &fake->children[1], WIRE_MAP_MEMORY);
	fake_serve(fake, &fake->children[2], WIRE_MAP_MEMORY);
	fake_expect(fake, client.socket, WIRE_REPLY);
	write_file("[user 4000000000]\nmemory_guarantee = 7M\n");
	expect_answer(CUDA_ERROR_INVALID_VALUE,
		"{\"reason\":\"memory_guarantee: what is served now holds 10M "
		"and would be guaranteed 7M "
		"more, and there are 16M (memory_policy is not evict)\"}");
	ck_assert_uint_eq(others->memory_guarantee, 0);
	write_file("[user 4000000000]\nmemory_guarantee = 7M\nmemory_policy = evict\n");
	expect_answer(0, "{\"restart\":\"\"}");
	ck_assert_uint_eq(others->memory_guarantee, 7 << 20);
	write_file("[user 4000000000]\nmemory_guarantee = 7M\n");
	ask();
	ck_assert_int_eq(hear(), CUDA_ERROR_INVALID_VALUE);
	write_file("[user 4000000000]\nmemory_guarantee = 6M\n");
	expect_answer(0, "{\"restart\":\"\"}");
	/* There is less now than was promised: what promises no more is accepted. */
	fake->daemon.device.total_bytes -= 8 << 20;
	write_file("memory_limit = 1G\n[user 4000000000]\nmemory_guarantee = 6M\n");
	expect_answer(0, "{\"restart\":\"\"}");
	fake_leave(fake, &other);
}

TEST(reload, what_needs_a_restart_is_named)
{
	write_file("clients_max = 7\nspin_us = 5\n");
	expect_answer(0, "{\"restart\":\"clients_max, spin_us\"}");
	ck_assert_uint_eq(fake->daemon.config->clients_max, 448);
}

TEST(lives, the_next_life_of_the_daemon_has_the_same_terms)
{
	write_file("[user 4000000000]\nmemory_limit = 1G\n[cgroup *]\npinned_limit = 3G\n");
	expect_answer(0, "{\"restart\":\"\"}");
	/* Not read again, so it does not hold. */
	write_file("pinned_limit = 9G\n");
	close(caller);
	ck_assert_int_eq(fake_come_back(fake), 0);
	caller = connect_operator(geteuid());
	ck_assert_uint_eq(fake->daemon.rules.count, 2);
	ck_assert_uint_eq(terms()->pinned_limit, UINT64_C(3) << 30);
	ck_assert_uint_eq(terms()->memory_limit, 0);
}

TEST(lives, a_program_gets_no_more_than_it_wants)
{
	struct session *session = TAILQ_FIRST(&fake->daemon.sessions);

	session->memory_wish = UINT64_C(2) << 30;
	session_changed(session);
	write_file("memory_limit = 5G\n");
	expect_answer(0, "{\"restart\":\"\"}");
	ck_assert_uint_eq(terms()->memory_limit, UINT64_C(2) << 30);
	write_file("memory_limit = 1G\n");
	expect_answer(0, "{\"restart\":\"\"}");
	ck_assert_uint_eq(terms()->memory_limit, UINT64_C(1) << 30);
	write_file("");
	expect_answer(0, "{\"restart\":\"\"}");
	ck_assert_uint_eq(terms()->memory_limit, UINT64_C(2) << 30);
	close(caller);
	ck_assert_int_eq(fake_come_back(fake), 0);
	caller = connect_operator(geteuid());
	ck_assert_uint_eq(terms()->memory_limit, UINT64_C(2) << 30);
}

TEST(reload, others_may_not)
{
	close(caller);
	caller = connect_operator(geteuid() + 4711);
	write_file("memory_limit = 5G\n");
	ask();
	ck_assert_int_eq(hear(), CUDA_ERROR_NOT_PERMITTED);
	ck_assert_uint_eq(terms()->memory_limit, 0);
}

TEST(reload, who_asks_may_be_gone_before_the_answer)
{
	write_file("memory_limit = 5G\n");
	ask();
	close(caller);
	while (fake->daemon.reload || !terms()->memory_limit)
		uv_run(&fake->loop, UV_RUN_ONCE);
	ck_assert_uint_eq(terms()->memory_limit, UINT64_C(5) << 30);
	caller = connect_operator(geteuid());
}

int main(void)
{
	Suite *suite = suite_create("reload");
	TCase *reload = suite_case(suite, "reload");
	/* What a killed daemon has open nobody closes. */
	TCase *lives = tcase_create("lives");

	fake_prepare();
	tcase_add_checked_fixture(reload, set_up, tear_down);
	suite_add(reload, "reload");
	suite_add_tcase(suite, lives);
	tcase_add_checked_fixture(lives, set_up, tear_down);
	suite_add(lives, "lives");
	return suite_run(suite);
}
