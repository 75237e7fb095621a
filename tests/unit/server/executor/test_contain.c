// What a fault that the backend sees means for sessions and for the daemon. The test is the
// backend's thread.

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "protocol/socket.h"
#include "server/clock.h"
#include "server/executor/contain.h"
#include "server/executor/lost.h"
#include "tests/lib/suite.h"
#include "tests/unit/server/executor/fixture.h"
#include "tests/unit/server/executor/slept.h"

#define MODULE	((struct backend_module *)(uintptr_t)0x4711)
#define UNKNOWN ((struct backend_module *)(uintptr_t)0x4712)

static struct last_words words[LAST_WORDS_MAX];
static const struct backend_watch *watch;

static void open_watch(void)
{
	fixture_open_default();
	contain_init(&fixture.executor);
	contain_note_module(&fixture.executor, MODULE, fixture.tenant->id);
	watch = atomic_load(&backend_watch);
	ck_assert_ptr_nonnull(watch);
	memset(words, 0, sizeof(words));
	backend_last_words = words;
}

static void close_watch(void)
{
	backend_last_words = NULL;
	contain_deinit(&fixture.executor);
	fixture_close();
}

static struct backend_fault fault_in(struct backend_module *module)
{
	return (struct backend_fault){.module = module,
		.code = CUDA_ERROR_MISALIGNED_ADDRESS,
		.address = 0x1234,
		.block = {1, 2, 3},
		.has_block = true,
		.kernel = "bad_kernel"};
}

static uint64_t step(uint64_t later_ns)
{
	return contain_step(&fixture.executor, fixture.now + later_ns);
}

/* The type of the next message to the daemon, 0 if there is none. */
static enum wire_type heard(struct wire_message *message)
{
	static struct packet packet;

	if (packet_receive(fixture.control[1], &packet))
		return 0;
	ck_assert_int_eq(wire_decode(packet.bytes, packet.length, message), 0);
	return message->type;
}

TEST(contain, nothing_goes_on_while_a_fault_is_not_explained)
{
	watch->suspected(watch->context);
	ck_assert(word_acquire(&fixture.client.server->doubtful));
	fixture_launch(3, 0, 1);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 0);
	ck_assert_uint_eq(fixture_state(), SHM_SESSION_RUNNING);
}

TEST(contain, the_culprit_is_told_and_everybody_else_goes_on)
{
	struct backend_fault fault = fault_in(MODULE);
	struct wire_message message;

	watch->suspected(watch->context);
	watch->stopped(watch->context);
	watch->contained(watch->context, &fault, 1);
	ck_assert_uint_eq(word_acquire(&fixture.client.server->doubtful), 0);
	ck_assert_uint_eq(fixture_state(), SHM_SESSION_FAULTED);
	ck_assert_uint_eq(fixture.client.server->error, CUDA_ERROR_MISALIGNED_ADDRESS);
	ck_assert_str_eq(fixture.client.server->reason,
		"a fault in kernel bad_kernel, block (1,2,3), instruction at 0x1234");
	ck_assert_uint_eq(words[0].magic, LAST_WORDS_MAGIC);
	ck_assert_uint_eq(words[0].session, fixture.tenant->id);
	ck_assert_uint_eq(step(0), UINT64_MAX);
	ck_assert_int_eq(heard(&message), WIRE_FAULT);
	ck_assert_uint_eq(message.session, fixture.tenant->id);
	ck_assert_int_eq(message.trouble.code, CUDA_ERROR_MISALIGNED_ADDRESS);
	ck_assert_str_eq(message.trouble.text, "bad_kernel");
	ck_assert_int_eq(heard(&message), 0);
	/* Nothing of the culprit's is served. */
	fixture_launch(3, 0, 1);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 0);
}

TEST(contain, others_are_served_again)
{
	struct backend_fault fault = fault_in(MODULE);

	contain_forget_module(&fixture.executor, MODULE);
	contain_note_module(&fixture.executor, MODULE, 4242);
	watch->suspected(watch->context);
	watch->contained(watch->context, &fault, 1);
	ck_assert_uint_eq(fixture_state(), SHM_SESSION_RUNNING);
	fixture_launch(3, 0, 1);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_LAUNCH), 1);
}

/* The context would go on with marks that nobody may believe. */
TEST(contain, a_kernel_of_nobody_is_the_end)
{
	struct backend_fault fault = fault_in(UNKNOWN);
	struct wire_message message;

	watch->suspected(watch->context);
	watch->contained(watch->context, &fault, 1);
	ck_assert(word_acquire(&fixture.client.server->doubtful));
	step(0);
	ck_assert_int_eq(heard(&message), WIRE_SUSPECT);
	ck_assert_int_eq(heard(&message), 0);
	ck_assert(!executor_is_lost(&fixture.executor));
}

TEST(contain, what_is_not_contained_is_the_daemons)
{
	struct backend_fault fault = fault_in(MODULE);
	struct wire_message message;

	watch->suspected(watch->context);
	watch->uncontained(watch->context, &fault, 1);
	step(0);
	ck_assert_int_eq(heard(&message), WIRE_SUSPECT);
	ck_assert_int_eq(heard(&message), 0);
	ck_assert_uint_eq(words[0].session, fixture.tenant->id);
	ck_assert(word_acquire(&fixture.client.server->doubtful));
	ck_assert(!executor_is_lost(&fixture.executor));
}

TEST(contain, words_of_a_contained_fault_are_no_evidence_of_the_next)
{
	struct backend_fault fault = fault_in(MODULE);
	struct wire_message message;

	watch->contained(watch->context, &fault, 1);
	watch->suspected(watch->context);
	watch->uncontained(watch->context, NULL, 0);
	step(0);
	ck_assert_int_eq(heard(&message), WIRE_FAULT);
	ck_assert_int_eq(heard(&message), WIRE_SUSPECT);
	ck_assert_int_eq(heard(&message), 0);
	ck_assert_uint_eq(words[0].magic, 0);
}

/* So the daemon can tell what it knows already from what is new. */
TEST(contain, each_fault_has_a_number_of_its_own)
{
	struct backend_fault fault = fault_in(MODULE);
	struct wire_message message;

	for (uint32_t i = 0; i < 3; i++) {
		watch->suspected(watch->context);
		watch->contained(watch->context, &fault, 1);
		step(0);
		ck_assert_int_eq(heard(&message), WIRE_FAULT);
		ck_assert_uint_eq(message.trouble.number, i + 1);
		ck_assert_uint_eq(words[i].fault, i + 1);
	}
	watch->uncontained(watch->context, &fault, 1);
	ck_assert_uint_eq(words[0].fault, 4);
	ck_assert_uint_eq(words[1].magic, 0);
}

static uint32_t doubt(void)
{
	return word_acquire(&fixture.client.server->doubtful);
}

/* What the daemon goes by if there is no more to come. */
TEST_LOOP(contain, the_doubt_says_what_is_known, 0, 2)
{
	struct backend_fault fault = fault_in(MODULE);

	word_set(&fixture.tenant->view.server->active, _i ? clock_now() - SHM_SIGN_NS / 2 : 0);
	watch->suspected(watch->context);
	ck_assert_uint_eq(doubt(), SHM_DOUBT | (_i ? SHM_DOUBT_WORKED : 0));
	/* However long the rest takes. */
	word_set(&fixture.tenant->view.server->active, 0);
	watch->stopped(watch->context);
	ck_assert_uint_eq(doubt(), SHM_DOUBT | SHM_DOUBT_FAULT | (_i ? SHM_DOUBT_WORKED : 0));
	watch->contained(watch->context, &fault, 1);
	ck_assert_uint_eq(doubt(), 0);
}

/* The warps that go on are stopped once more as a rule, and then nothing has faulted
 * (backend/cuda/exception.c). */
TEST_LOOP(contain, what_was_given_up_is_doubtful_for_good, 0, 2)
{
	const uint32_t given_up = SHM_DOUBT | SHM_DOUBT_FAULT | SHM_DOUBT_WORKED;
	struct backend_fault fault = fault_in(MODULE);

	word_set(&fixture.tenant->view.server->active, clock_now());
	watch->suspected(watch->context);
	watch->stopped(watch->context);
	watch->uncontained(watch->context, NULL, 0);
	ck_assert_uint_eq(doubt(), given_up);
	watch->suspected(watch->context);
	watch->stopped(watch->context);
	watch->contained(watch->context, _i ? &fault : NULL, (uint32_t)_i);
	ck_assert_uint_eq(doubt(), given_up);
	ck_assert(contain_is_open(&fixture.executor));
}

/* A stop behind many lines of the driver's takes seconds, and leaves less for the rest. */
TEST_LOOP(contain, what_is_not_explained_in_time_is_the_daemons, 0, 2)
{
	const uint64_t later = 4900 * CLOCK_MS;
	struct wire_message message;
	uint64_t next;

	watch->suspected(watch->context);
	next = step(0) - fixture.now;
	ck_assert(next > later && next < 3 * later);
	ck_assert_uint_eq(step(later), fixture.now + next);
	if (_i)
		watch->stopped(watch->context);
	ck_assert_uint_eq(step(next - 1), fixture.now + next);
	ck_assert_int_eq(heard(&message), 0);
	ck_assert_uint_eq(step(next), UINT64_MAX);
	ck_assert_int_eq(heard(&message), WIRE_SUSPECT);
	ck_assert_uint_eq(step(next + CLOCK_MS), UINT64_MAX);
	ck_assert_int_eq(heard(&message), 0);
}

TEST(contain, there_is_room_for_any_number)
{
	struct backend_fault fault = fault_in(MODULE);
	struct wire_message message;

	for (unsigned i = 0; i < 3 * LAST_WORDS_MAX; i++) {
		watch->contained(watch->context, &fault, 1);
		step(0);
		ck_assert_int_eq(heard(&message), WIRE_FAULT);
		ck_assert_int_eq(heard(&message), 0);
	}
	ck_assert(!executor_is_lost(&fixture.executor));
}

/* The main thread may be in a call of the driver meanwhile. */
TEST(contain, all_are_told_of_however_many_there_were)
{
	struct backend_fault fault = fault_in(MODULE);
	struct wire_message message;

	for (unsigned i = 0; i < 3 * BACKEND_FAULTS_MAX; i++)
		watch->contained(watch->context, &fault, 1);
	step(0);
	for (unsigned i = 0; i < 3 * BACKEND_FAULTS_MAX; i++) {
		ck_assert_int_eq(heard(&message), WIRE_FAULT);
		ck_assert_uint_eq(message.trouble.number, i + 1);
	}
	ck_assert_int_eq(heard(&message), 0);
}

/* A sign may turn out to be none. */
TEST(contain, where_nothing_has_faulted_all_goes_on)
{
	watch->suspected(watch->context);
	ck_assert(contain_is_open(&fixture.executor));
	watch->contained(watch->context, NULL, 0);
	ck_assert(!contain_is_open(&fixture.executor));
	ck_assert_uint_eq(step(0), UINT64_MAX);
}

/* The former executor may still see faults until it has ended. */
TEST(contain, who_was_taken_over_is_not_doubted_any_more)
{
	struct backend_fault fault = fault_in(UNKNOWN);
	struct shm_server_header *server = fixture.tenant->view.server;

	word_release(&server->generation, word_relaxed(&fixture.tenant->generation) + 1);
	watch->suspected(watch->context);
	ck_assert_uint_eq(doubt(), 0);
	watch->stopped(watch->context);
	watch->uncontained(watch->context, &fault, 1);
	ck_assert_uint_eq(doubt(), 0);
	/* Nor is it believed when the next one doubts it. */
	word_release(&server->doubtful, SHM_DOUBT);
	watch->suspected(watch->context);
	watch->contained(watch->context, &(struct backend_fault){.module = MODULE}, 1);
	ck_assert_uint_eq(doubt(), SHM_DOUBT);
}

/* Where the backend does not see exceptions, a lost context may be one, and marks prove nothing. */
TEST_LOOP(contain, without_a_backend_that_sees_exceptions_a_lost_context_leaves_doubts, 0, 2)
{
	struct wire_message message;

	backend_contains = _i != 0;
	word_set(&fixture.tenant->view.server->active, clock_now());
	lost_report(&fixture.executor, CUDA_ERROR_ILLEGAL_ADDRESS);
	backend_contains = false;
	ck_assert_int_eq(heard(&message), WIRE_LOST);
	ck_assert_uint_eq(doubt(), _i ? 0 : SHM_DOUBT | SHM_DOUBT_FAULT | SHM_DOUBT_WORKED);
}

TEST(contain, the_next_executor_has_no_doubts)
{
	watch->suspected(watch->context);
	contain_deinit(&fixture.executor);
	fixture_take_over(TAKEOVER_NOTHING);
	contain_init(&fixture.executor);
	ck_assert_uint_eq(word_acquire(&fixture.client.server->doubtful), 0);
	ck_assert_uint_eq(fixture_state(), SHM_SESSION_RUNNING);
}

/* What ends it in the serving thread may come at the same moment: a kernel that strays is often one
 * that faults. Who comes first is stopped in the middle: some of what it has to tell is on a page
 * that cannot be read. */
static char *page;
static size_t page_bytes;
static word32 is_met, is_over;

/* Goes on when the other one has come as far as it can: it has ended, or waits for us. */
static void on_page(int number, siginfo_t *info, void *unused)
{
	const char *at = info->si_addr;

	(void)unused;
	if (at < page || at >= page + page_bytes) {
		signal(number, SIG_DFL);
		return;
	}
	word_release(&is_met, 1);
	while (!word_acquire(&is_over) && !is_slept_at(&fixture.executor.ends_lock))
		sched_yield();
	mprotect(page, page_bytes, PROT_READ);
}

static void make_page(const char *text)
{
	struct sigaction action = {.sa_sigaction = on_page, .sa_flags = SA_SIGINFO};

	page_bytes = (size_t)sysconf(_SC_PAGESIZE);
	page = mmap(NULL, page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(page, MAP_FAILED);
	strcpy(page, text);
	ck_assert_int_eq(mprotect(page, page_bytes, PROT_NONE), 0);
	ck_assert_int_eq(sigaction(SIGSEGV, &action, NULL), 0);
}

static void *offend(void *text)
{
	tenant_end(fixture.tenant, SHM_SESSION_CLOSED, CUDA_ERROR_MPS_CLIENT_TERMINATED, text);
	return NULL;
}

static void expect_offence(const struct shm_server_header *server)
{
	ck_assert_uint_eq(fixture_state(), SHM_SESSION_CLOSED);
	ck_assert_uint_eq(server->error, CUDA_ERROR_MPS_CLIENT_TERMINATED);
	ck_assert_str_eq(server->reason, "on a page");
}

TEST(contain, of_two_ends_at_a_time_the_first_is_told)
{
	struct shm_server_header *server = fixture.tenant->view.server;
	struct backend_fault fault = fault_in(MODULE);
	pthread_t thread;

	make_page("on a page");
	ck_assert_int_eq(pthread_create(&thread, NULL, offend, page), 0);
	while (!word_acquire(&is_met))
		sched_yield();
	watch->contained(watch->context, &fault, 1);
	/* The program may have been told: it stays so. */
	expect_offence(server);
	word_release(&is_over, 1);
	pthread_join(thread, NULL);
	expect_offence(server);
	munmap(page, page_bytes);
}

int main(void)
{
	Suite *suite = suite_create("executor/contain");
	TCase *tests = tcase_create("contain");

	tcase_add_checked_fixture(tests, open_watch, close_watch);
	suite_add(tests, "contain");
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
