// Verbs of stock MPS, as far as the service decides on them.

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "protocol/cuda_abi.h"
#include "protocol/uuid.h"
#include "server/control/mps.h"
#include "server/control/caller.h"
#include "server/holder/store.h"
#include "server/loop/timer.h"
#include "server/session/domain.h"
#include "server/session/partition.h"
#include "server/session/session.h"
#include "shm/layout.h"
#include "tests/lib/suite.h"
#include "tests/unit/server/fake_children.h"

#define STRANGER ((uid_t)12345)
#define GIB	 (UINT64_C(1) << 30)
#define MIB	 (UINT64_C(1) << 20)

static struct fake *fake;
static struct fake_client client;
static struct mps_answer answer;
static char server[16]; /* of the client's user */

static void set_up(void)
{
	fake_with_records = true;
	fake = fake_new(1);
	fake_boot(fake);
	fake_join(fake, &client, &fake->children[1], &fake->children[2]);
	snprintf(server, sizeof(server), "%d", (int)fake->children[1].worker->pid);
}

static void tear_down(void)
{
	fake_leave(fake, &client);
	packet_close_fds(&fake->packet);
	fake_free(fake);
}

/* Return: code of the answer */
static int32_t say_words(uid_t uid, const char *verb, const char *const words[4])
{
	struct caller_request request = {.id = 1};

	snprintf(request.command, sizeof(request.command), "%s", verb);
	for (; request.argument_count < 4 && words[request.argument_count]; request.argument_count++)
		snprintf(request.arguments[request.argument_count], OPERATOR_WORD_MAX, "%s",
			words[request.argument_count]);
	mps_do(&fake->daemon, uid, &request, &answer);
	return answer.code;
}

static int32_t say_as(uid_t uid, const char *verb, const char *one, const char *two, const char *three)
{
	return say_words(uid, verb, (const char *const[]){one, two, three, NULL});
}

static int32_t say_four(
	const char *verb, const char *one, const char *two, const char *three, const char *four)
{
	return say_words(geteuid(), verb, (const char *const[]){one, two, three, four});
}

static int32_t say(const char *verb, const char *one, const char *two, const char *three)
{
	return say_as(geteuid(), verb, one, two, three);
}

static void expect_text(const char *text, const char *verb, const char *one, const char *two)
{
	ck_assert_int_eq(say(verb, one, two, NULL), CUDA_SUCCESS);
	ck_assert_str_eq(answer.text, text);
}

static void expect_said(const char *part)
{
	ck_assert_msg(strstr(answer.text, part) != NULL, "%s", answer.text);
}

static const struct {
	const char *text;
	uint64_t bytes; /* UINT64_MAX: it is none */
} values[] = {
	{"10G", 10 * GIB},
	{"900M", 900 * MIB},
	{"1g", GIB},
	{"1m", MIB},
	{"0M", 0},
	{"17179869183G", UINT64_C(17179869183) << 30},
	{"17179869184G", UINT64_MAX},
	{"99999999999999999999999M", UINT64_MAX},
	{"10", UINT64_MAX},
	{"G", UINT64_MAX},
	{"", UINT64_MAX},
	{"10GB", UINT64_MAX},
	{"10K", 10 << 10},
	{"10T", UINT64_MAX},
	{"-1G", UINT64_MAX},
	{"1.5G", UINT64_MAX},
	{" 1G", UINT64_MAX},
	{"0x1G", UINT64_MAX},
};

TEST_LOOP(mps, value_is_a_number_with_its_unit, 0, sizeof(values) / sizeof(*values))
{
	uint64_t bytes = 7;

	ck_assert_int_eq(mps_parse_value(values[_i].text, &bytes), values[_i].bytes != UINT64_MAX);
	ck_assert_uint_eq(bytes, values[_i].bytes != UINT64_MAX ? values[_i].bytes : 7);
}

/* The first keeps its limit, the second has the default, the third that of its server. */
TEST(lives, limits_hold_for_sessions_that_begin_later)
{
	static const char set_default[] = "set_default_device_pinned_mem_limit",
			  get_default[] = "get_default_device_pinned_mem_limit";
	struct fake_client second, third;

	expect_text("", get_default, NULL, NULL);
	ck_assert_int_eq(say(set_default, "0", "3072M", NULL), CUDA_SUCCESS);
	expect_text("3G", get_default, "0", NULL);
	expect_text("3G", "get_device_pinned_mem_limit", server, "0");
	fake_join(fake, &second, &fake->children[1], &fake->children[2]);
	ck_assert_int_eq(say("set_device_pinned_mem_limit", server, "0", "900M"), CUDA_SUCCESS);
	expect_text("900M", "get_device_pinned_mem_limit", server, "0");
	expect_text("3G", get_default, "0", NULL);
	fake_join(fake, &third, &fake->children[1], &fake->children[2]);
	ck_assert_int_eq(fake_come_back(fake), 0);
	ck_assert_uint_eq(fake_session(fake, 0)->terms.memory_limit, 0);
	ck_assert_uint_eq(fake_session(fake, 1)->terms.memory_limit, 3 * GIB);
	ck_assert_uint_eq(fake_session(fake, 2)->terms.memory_limit, 900 * MIB);
	expect_text("900M", "get_device_pinned_mem_limit", server, "0");
	ck_assert_int_eq(say(set_default, "0", "0M", NULL), CUDA_SUCCESS);
	expect_text("", get_default, "0", NULL);
	fake_leave(fake, &second);
	fake_leave(fake, &third);
}

TEST(mps, limits_only_tighten)
{
	struct fake_client second;

	fake->daemon.rules.general.memory_limit = 2 * GIB;
	ck_assert_int_eq(say("set_default_device_pinned_mem_limit", "0", "3G", NULL), CUDA_SUCCESS);
	expect_text("2G", "get_default_device_pinned_mem_limit", "0", NULL);
	/* A server's own limit is no way around the default. */
	ck_assert_int_eq(say("set_device_pinned_mem_limit", server, "0", "5G"), CUDA_SUCCESS);
	expect_text("2G", "get_device_pinned_mem_limit", server, "0");
	fake_join(fake, &second, &fake->children[1], &fake->children[2]);
	ck_assert_uint_eq(fake_session(fake, 1)->terms.memory_limit, 2 * GIB);
	fake_leave(fake, &second);
}

static const struct {
	const char *verb, *words[3];
	int32_t code;
	const char *says;
} refused[] = {
	{"set_default_device_pinned_mem_limit", {"0", "3"}, CUDA_ERROR_INVALID_VALUE,
		"3 is no number with K, M or G"},
	{"set_default_device_pinned_mem_limit", {"1", "3G"}, CUDA_ERROR_INVALID_DEVICE,
		"there is no device 1"},
	{"set_default_device_pinned_mem_limit", {"GPU-ffff", "3G"}, CUDA_ERROR_INVALID_DEVICE, "GPU-ffff"},
	{"set_default_device_pinned_mem_limit", {"0"}, CUDA_ERROR_INVALID_VALUE, "it takes 2 arguments"},
	{"get_default_device_pinned_mem_limit", {"1"}, CUDA_ERROR_INVALID_DEVICE, "there is no device 1"},
	{"set_device_pinned_mem_limit", {"1", "0", "3G"}, CUDA_ERROR_NOT_FOUND, "there is no server 1"},
	{"get_device_pinned_mem_limit", {"x", "0"}, CUDA_ERROR_NOT_FOUND, "there is no server x"},
	{"get_active_thread_percentage", {"1"}, CUDA_ERROR_NOT_FOUND, "there is no server 1"},
	{"shutdown_server", {"1"}, CUDA_ERROR_NOT_FOUND, "there is no server 1"},
	{"shutdown_server", {"1", "-x"}, CUDA_ERROR_INVALID_VALUE, "it takes a server, and -f"},
	{"start_server", {"-uid", "root"}, CUDA_ERROR_INVALID_VALUE, "the number of a user"},
	{"start_server", {"-uid", "4294967295"}, CUDA_ERROR_INVALID_VALUE, "the number of a user"},
	{"start_server", {"-x", "0"}, CUDA_ERROR_INVALID_VALUE, "the number of a user"},
	{"quit", {"-t"}, CUDA_ERROR_INVALID_VALUE, "it takes nothing, or -t"},
	{"quit", {"-t", "86401"}, CUDA_ERROR_INVALID_VALUE, "up to 86400 seconds"},
	{"quit", {"-x", "1"}, CUDA_ERROR_INVALID_VALUE, "it takes nothing, or -t"},
	{"set_default_active_thread_percentage", {"0"}, CUDA_ERROR_INVALID_VALUE,
		"0 is no percentage from 1 to 100"},
	{"set_default_active_thread_percentage", {"101"}, CUDA_ERROR_INVALID_VALUE, "101 is no percentage"},
	{"set_default_active_thread_percentage", {"50%"}, CUDA_ERROR_INVALID_VALUE, "50% is no percentage"},
	{"set_default_active_thread_percentage", {"-1"}, CUDA_ERROR_INVALID_VALUE, "-1 is no percentage"},
	{"set_active_thread_percentage", {"1", "50"}, CUDA_ERROR_NOT_FOUND, "there is no server 1"},
	{"set_default_client_priority", {"2"}, CUDA_ERROR_INVALID_VALUE, "2 is neither 0, normal, nor 1"},
	{"set_default_client_priority", {"-1"}, CUDA_ERROR_INVALID_VALUE, "-1 is neither 0"},
	{"sm_partition", {"add", "0", "1"}, CUDA_ERROR_NOT_SUPPORTED, "does not give out multiprocessors"},
	{"sm_partition", {"add", "1", "1"}, CUDA_ERROR_INVALID_DEVICE, "there is no device 1"},
	{"sm_partition", {"move", "0", "1"}, CUDA_ERROR_INVALID_VALUE, "it takes add DEVICE CHUNKS"},
	{"sm_partition", {"resize", "0", "p1"}, CUDA_ERROR_INVALID_VALUE, "it takes add DEVICE CHUNKS"},
	{"sm_partition", {"rm", "0", "p1"}, CUDA_ERROR_NOT_FOUND, "there is no partition p1"},
};

/* As limits of memory do. */
TEST(lives, percentages_hold_for_sessions_that_begin_later)
{
	static const char set_default[] = "set_default_active_thread_percentage",
			  get_default[] = "get_default_active_thread_percentage";
	struct fake_client second, third;

	expect_text("100.0", get_default, NULL, NULL);
	ck_assert_int_eq(say(set_default, "60", NULL, NULL), CUDA_SUCCESS);
	expect_text("60.0", get_default, NULL, NULL);
	expect_text("60.0", "get_active_thread_percentage", server, NULL);
	fake_join(fake, &second, &fake->children[1], &fake->children[2]);
	ck_assert_int_eq(say("set_active_thread_percentage", server, "12.5", NULL), CUDA_SUCCESS);
	expect_text("12.0", "get_active_thread_percentage", server, NULL);
	expect_text("60.0", get_default, NULL, NULL);
	fake_join(fake, &third, &fake->children[1], &fake->children[2]);
	ck_assert_int_eq(fake_come_back(fake), 0);
	ck_assert_uint_eq(fake_session(fake, 0)->sm_wish, 0);
	ck_assert_uint_eq(fake_session(fake, 1)->sm_wish, 60);
	ck_assert_uint_eq(fake_session(fake, 2)->sm_wish, 12);
	ck_assert_uint_eq(fake_session(fake, 2)->terms.sm_percent, 12);
	expect_text("12.0", "get_active_thread_percentage", server, NULL);
	/* The configuration allows less. */
	fake->daemon.rules.general.sm_percent = 50;
	expect_text("50.0", get_default, NULL, NULL);
	/* A user may lower it. */
	ck_assert_int_eq(say_as(STRANGER, "set_default_active_thread_percentage", "5", NULL, NULL),
		CUDA_ERROR_NOT_PERMITTED);
	ck_assert_int_eq(say_as(STRANGER, "set_active_thread_percentage", server, "5", NULL),
		CUDA_ERROR_NOT_PERMITTED);
	fake_leave(fake, &second);
	fake_leave(fake, &third);
}

TEST(lives, priority_holds_for_sessions_that_begin_later)
{
	static const char set[] = "set_default_client_priority", get[] = "get_default_client_priority";
	struct fake_client second, third;

	ck_assert_int_eq(say(set, "1", NULL, NULL), CUDA_SUCCESS);
	expect_text("1", get, NULL, NULL);
	fake_join(fake, &second, &fake->children[1], &fake->children[2]);
	ck_assert_int_eq(fake_come_back(fake), 0);
	expect_text("1", get, NULL, NULL);
	ck_assert_uint_eq(fake_session(fake, 0)->terms.class, CONFIG_CLASS_ONLINE);
	ck_assert_uint_eq(fake_session(fake, 1)->terms.class, CONFIG_CLASS_OFFLINE);
	ck_assert_int_eq(say(set, "0", NULL, NULL), CUDA_SUCCESS);
	expect_text("0", get, NULL, NULL);
	/* It stays what it was when it began, and is never more than the configuration says. */
	session_set_terms(fake_session(fake, 1));
	ck_assert_uint_eq(fake_session(fake, 1)->terms.class, CONFIG_CLASS_OFFLINE);
	fake->daemon.rules.general.class = CONFIG_CLASS_OFFLINE;
	expect_text("1", get, NULL, NULL);
	fake_join(fake, &third, &fake->children[1], &fake->children[2]);
	ck_assert_uint_eq(fake_session(fake, 2)->terms.class, CONFIG_CLASS_OFFLINE);
	ck_assert_int_eq(say_as(STRANGER, set, "1", NULL, NULL), CUDA_ERROR_NOT_PERMITTED);
	fake_leave(fake, &second);
	fake_leave(fake, &third);
}

/* As on an H100. */
static void have_chunks(void)
{
	fake->daemon.device.sm_granule = 8;
	fake->daemon.device.sm_units = 15;
	fake->daemon.device.attributes[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT] = 132;
	store_put_single(
		fake->daemon.store, RECORD_DEVICE, &fake->daemon.device, sizeof(fake->daemon.device));
}

/* What an executor and the program are told. */
static void expect_share(unsigned index, uint64_t partition, uint32_t sms, uint32_t flag)
{
	struct session *session = fake_session(fake, index);

	ck_assert_uint_eq(session_sms(session), sms);
	ck_assert_uint_eq(word_acquire(&session->view.server->partition), partition);
	ck_assert_uint_eq(word_acquire(&session->view.server->rest), partition_rest(&fake->daemon));
	ck_assert_uint_eq(word_acquire(&session->view.server->share),
		(sms == 132 ? 0 : sms << SHM_SHARE_SMS_SHIFT) | flag);
}

/* An executor that sleeps sees it at once. */
static void expect_wake(void)
{
	fake_serve(fake, &fake->children[1], WIRE_PING);
}

static void join_partition(struct fake_client *member, const char *name)
{
	fake_partition = name;
	fake_join(fake, member, &fake->children[1], &fake->children[2]);
	fake_partition = "";
}

TEST(lives, partitions_are_made_resized_and_removed)
{
	struct fake_client member;
	char uuid[UUID_TEXT], text[64];

	have_chunks();
	uuid_text(fake->daemon.device.uuid, uuid);
	snprintf(text, sizeof(text), "Partition %s/p1 created", uuid);
	ck_assert_int_eq(say("sm_partition", "add", "0", "2"), CUDA_SUCCESS);
	ck_assert_str_eq(answer.text, text);
	expect_wake();
	/* The session that is there has what remains, for certain. */
	expect_share(0, 0, 13 * 8, SHM_SHARE_LENT);
	snprintf(text, sizeof(text), "%s/p1", uuid);
	join_partition(&member, text);
	expect_share(1, BACKEND_SMS(13, 2), 2 * 8, 0);
	ck_assert_uint_eq(partition_sessions(&fake->daemon, 1), 1);
	ck_assert_int_eq(say_four("sm_partition", "resize", "0", "p1", "5"), CUDA_SUCCESS);
	expect_wake();
	expect_share(1, BACKEND_SMS(10, 5), 5 * 8, 0);
	expect_share(0, 0, 10 * 8, SHM_SHARE_LENT);
	ck_assert_int_eq(say("sm_partition", "add", "0", "1"), CUDA_SUCCESS);
	expect_wake();
	ck_assert_int_eq(say_four("sm_partition", "resize", "0", "p1", "3"), CUDA_SUCCESS);
	expect_wake();
	expect_share(1, BACKEND_SMS(12, 3), 3 * 8, 0);
	/* They outlive the daemon, and nobody's place moves with another one's. */
	ck_assert_int_eq(fake_come_back(fake), 0);
	expect_share(0, 0, 11 * 8, SHM_SHARE_LENT);
	expect_share(1, BACKEND_SMS(12, 3), 3 * 8, 0);
	ck_assert_uint_eq(partition_units(&fake->daemon, 2), BACKEND_SMS(9, 1));
	/* Those of one that is removed go on, and its name is nobody's any more. */
	ck_assert_int_eq(say("sm_partition", "rm", "0", "p1"), CUDA_SUCCESS);
	expect_wake();
	expect_share(1, 0, 14 * 8, SHM_SHARE_LENT);
	ck_assert_int_eq(say("sm_partition", "rm", "0", "p2"), CUDA_SUCCESS);
	expect_share(0, 0, 132, 0);
	expect_share(1, 0, 132, 0);
	ck_assert_int_eq(say("sm_partition", "add", "0", "1"), CUDA_SUCCESS);
	ck_assert_ptr_nonnull(strstr(answer.text, "/p3 created"));
	expect_share(1, 0, 14 * 8, SHM_SHARE_LENT);
	fake_leave(fake, &member);
}

TEST(lives, partitions_leave_a_unit_to_others)
{
	have_chunks();
	ck_assert_int_eq(say("sm_partition", "add", "0", "15"), CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
	expect_said("more than it can have, 14: the device has 15 of 8 multiprocessors");
	ck_assert_int_eq(say("sm_partition", "add", "0", "0"), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(say("sm_partition", "add", "0", "x"), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(say("sm_partition", "add", "0", "10"), CUDA_SUCCESS);
	ck_assert_int_eq(say("sm_partition", "add", "0", "5"), CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
	ck_assert_int_eq(say_four("sm_partition", "resize", "0", "p1", "15"),
		CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
	ck_assert_int_eq(say_four("sm_partition", "resize", "0", "p1", "14"), CUDA_SUCCESS);
	expect_share(0, 0, 8, SHM_SHARE_LENT);
	ck_assert_int_eq(say_as(STRANGER, "sm_partition", "add", "0", "1"), CUDA_ERROR_NOT_PERMITTED);
	ck_assert_int_eq(say_as(STRANGER, "sm_partition", "rm", "0", "p1"), CUDA_ERROR_NOT_PERMITTED);
	ck_assert_uint_eq(fake->daemon.partitions.count, 1);
}

TEST(lives, there_are_only_so_many_partitions)
{
	have_chunks();
	fake->daemon.device.sm_units = BACKEND_SM_UNITS_MAX;
	for (unsigned i = 0; i < PARTITIONS_MAX; i++)
		ck_assert_int_eq(say("sm_partition", "add", "0", "1"), CUDA_SUCCESS);
	ck_assert_int_eq(say("sm_partition", "add", "0", "1"), CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
	ck_assert_uint_eq(partition_rest(&fake->daemon), BACKEND_SMS(0, 32));
}

/* A cap holds within a partition, and beside it. */
TEST(lives, a_cap_and_a_partition_both_hold)
{
	struct fake_client member;

	have_chunks();
	fake->daemon.rules.general.sm_percent = 50;
	ck_assert_int_eq(say("sm_partition", "add", "0", "10"), CUDA_SUCCESS);
	expect_wake();
	join_partition(&member, "p1");
	session_set_terms(fake_session(fake, 0));
	expect_share(0, 0, 5 * 8, 0);
	expect_share(1, BACKEND_SMS(5, 10), 8 * 8, 0);
	fake_leave(fake, &member);
}

TEST(lives, a_program_that_names_no_partition_there_is_is_refused)
{
	struct fake_client member = {0};

	have_chunks();
	fake_partition = "p1";
	fake_hello(fake, &member);
	fake_partition = "";
	ck_assert_int_eq(fake_expect(fake, member.socket, WIRE_REFUSE)->refuse.code,
		CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
	ck_assert_ptr_nonnull(strstr(fake->message.refuse.text, "CUDA_MPS_SM_PARTITION"));
	close(member.socket);
}

TEST_LOOP(mps, refusal_names_the_verb_and_says_why, 0, sizeof(refused) / sizeof(*refused))
{
	const char *const *words = refused[_i].words;
	size_t length = strlen(refused[_i].verb);

	ck_assert_int_eq(say(refused[_i].verb, words[0], words[1], words[2]), refused[_i].code);
	expect_said(refused[_i].says);
	ck_assert_int_eq(strncmp(answer.text, refused[_i].verb, length), 0);
	ck_assert(!answer.stops);
}

TEST(mps, what_is_not_limited_is_told)
{
	expect_text("100.0", "get_default_active_thread_percentage", NULL, NULL);
	expect_text("100.0", "get_active_thread_percentage", server, NULL);
	expect_text("0", "get_default_client_priority", NULL, NULL);
}

TEST(mps, device_goes_by_its_uuid_as_well)
{
	char uuid[UUID_TEXT];

	uuid_text(fake->daemon.device.uuid, uuid);
	ck_assert_uint_eq(strlen(uuid), UUID_TEXT - 1);
	expect_text("", "get_default_device_pinned_mem_limit", uuid, NULL);
	uuid[12] = '\0';
	expect_text("", "get_default_device_pinned_mem_limit", uuid, NULL);
	ck_assert_int_eq(
		say("get_default_device_pinned_mem_limit", "GPU-", NULL, NULL), CUDA_ERROR_INVALID_DEVICE);
}

TEST(mps, others_may_do_nothing_to_anybody)
{
	char own[16];

	snprintf(own, sizeof(own), "%u", (unsigned)geteuid());
	ck_assert_int_eq(say_as(STRANGER, "quit", NULL, NULL, NULL), CUDA_ERROR_NOT_PERMITTED);
	expect_said("only root and the service's own user");
	ck_assert(!answer.stops);
	ck_assert_int_eq(say_as(STRANGER, "set_default_device_pinned_mem_limit", "0", "1G", NULL),
		CUDA_ERROR_NOT_PERMITTED);
	ck_assert_int_eq(
		say_as(STRANGER, "set_device_pinned_mem_limit", server, "0", "1G"), CUDA_ERROR_NOT_PERMITTED);
	expect_said("is another user's");
	ck_assert_int_eq(say_as(STRANGER, "shutdown_server", server, "-f", NULL), CUDA_ERROR_NOT_PERMITTED);
	ck_assert_int_eq(say_as(STRANGER, "start_server", "-uid", own, NULL), CUDA_ERROR_NOT_PERMITTED);
	ck_assert_uint_eq(fake->daemon.memory_default, 0);
	ck_assert_int_ne(fake_domain(fake)->life, DOMAIN_DISMISSED);
	ck_assert_uint_eq(fake_domain(fake)->memory_limit, 0);
}

TEST(mps, user_starts_and_limits_his_own)
{
	struct domain *domain;

	ck_assert_int_eq(say_as(STRANGER, "start_server", "-uid", "12345", NULL), CUDA_SUCCESS);
	domain = TAILQ_NEXT(fake_domain(fake), link);
	ck_assert_ptr_nonnull(domain);
	ck_assert_uint_eq(domain->identity.uid, STRANGER);
	/* One that nobody uses does not stay. */
	ck_assert(timer_running(domain->idle));
	/* He has one then. */
	ck_assert_int_eq(say_as(STRANGER, "start_server", "-uid", "12345", NULL), CUDA_SUCCESS);
	ck_assert_ptr_null(TAILQ_NEXT(domain, link));
	fake_warm(fake, &fake->children[3]);
	snprintf(server, sizeof(server), "%d", (int)fake->children[3].worker->pid);
	ck_assert_int_eq(say_as(STRANGER, "set_device_pinned_mem_limit", server, "0", "1G"), CUDA_SUCCESS);
	/* But not more than an operator lets him have. */
	ck_assert_int_eq(say("set_device_pinned_mem_limit", server, "0", "2G"), CUDA_SUCCESS);
	ck_assert_int_eq(
		say_as(STRANGER, "set_device_pinned_mem_limit", server, "0", "3G"), CUDA_ERROR_NOT_PERMITTED);
	ck_assert_int_eq(
		say_as(STRANGER, "set_device_pinned_mem_limit", server, "0", "0M"), CUDA_ERROR_NOT_PERMITTED);
	ck_assert_int_eq(say_as(STRANGER, "set_device_pinned_mem_limit", server, "0", "1G"), CUDA_SUCCESS);
	ck_assert_uint_eq(domain->memory_limit, GIB);
	ck_assert_int_eq(say_as(STRANGER, "set_active_thread_percentage", server, "40", NULL), CUDA_SUCCESS);
	ck_assert_int_eq(say_as(STRANGER, "set_active_thread_percentage", server, "41", NULL),
		CUDA_ERROR_NOT_PERMITTED);
	ck_assert_uint_eq(domain->sm_percent, 40);
}

/* A program that comes meanwhile is in another domain. */
TEST(lives, server_ends_with_its_last_program)
{
	struct domain *domain = fake_domain(fake);
	struct fake_client second;

	ck_assert_int_eq(say("shutdown_server", server, NULL, NULL), CUDA_SUCCESS);
	ck_assert_int_eq(fake_come_back(fake), 0);
	domain = fake_domain(fake);
	ck_assert_int_eq(domain->life, DOMAIN_DISMISSED);
	fake_hello(fake, &second);
	ck_assert_uint_eq(fake->daemon.session_count, 2);
	ck_assert_ptr_null(TAILQ_NEXT(TAILQ_FIRST(&domain->sessions), domain_link));
	fake_leave(fake, &client);
	fake_serve(fake, &fake->children[1], WIRE_CLOSE_SESSION);
	fake_serve(fake, &fake->children[2], WIRE_CLOSE_SESSION);
	FAKE_RUN_WHILE(fake, !fake->children[1].killed);
	ck_assert_int_eq(domain->life, DOMAIN_RETIRES);
	close(second.socket);
}

TEST(mps, server_ends_with_its_programs)
{
	ck_assert_int_eq(say("shutdown_server", server, "-f", NULL), CUDA_SUCCESS);
	fake_turn(fake);
	ck_assert_uint_eq(word_acquire(&client.view.server->state), SHM_SESSION_CLOSED);
	ck_assert_uint_eq(word_acquire(&client.view.server->error), CUDA_ERROR_MPS_CLIENT_TERMINATED);
	ck_assert_int_eq(fake_domain(fake)->life, DOMAIN_DISMISSED);
	fake_serve(fake, &fake->children[1], WIRE_CLOSE_SESSION);
	fake_serve(fake, &fake->children[2], WIRE_CLOSE_SESSION);
	FAKE_RUN_WHILE(fake, !fake->children[1].killed);
	ck_assert_int_eq(fake_domain(fake)->life, DOMAIN_RETIRES);
	ck_assert(fake->children[2].killed);
	fake_reap(fake, &fake->children[1], SIGKILL);
	fake_reap(fake, &fake->children[2], SIGKILL);
	/* The next one is nobody's yet. */
	ck_assert_int_eq(fake_domain(fake)->use, DOMAIN_NOBODYS);
}

TEST(mps, quit_says_how_long_programs_have)
{
	fake->daemon.stop_seconds = 30;
	ck_assert_int_eq(say("quit", NULL, NULL, NULL), CUDA_SUCCESS);
	ck_assert(answer.stops);
	ck_assert_uint_eq(answer.stop_seconds, 30);
	ck_assert_int_eq(say("quit", "-t", "5", NULL), CUDA_SUCCESS);
	ck_assert_uint_eq(answer.stop_seconds, 5);
	daemon_quit(&fake->daemon, answer.stop_seconds);
	fake_turn(fake);
	ck_assert_int_eq(fake->daemon.phase, DAEMON_STOPS);
}

TEST(lives, how_long_programs_have_is_not_forgotten)
{
	daemon_quit(&fake->daemon, 7);
	ck_assert_int_eq(fake_come_back(fake), 0);
	ck_assert_uint_eq(fake->daemon.stop_seconds, 7);
}

int main(void)
{
	Suite *suite = suite_create("mps");
	TCase *tests = suite_case(suite, "mps"), *lives = tcase_create("lives");

	fake_prepare();
	tcase_add_checked_fixture(tests, set_up, tear_down);
	suite_add(tests, "mps");
	/* Without a count of descriptors: a life that is over had some. */
	tcase_add_checked_fixture(lives, set_up, tear_down);
	suite_add(lives, "lives");
	suite_add_tcase(suite, lives);
	return suite_run(suite);
}
