// Programs that share device memory go to another device of the service together, or none goes.
// Afterwards they share as before, and handles that they have given out before are good.
//
// FRMPS_TEST_MIGRATE_ROUNDS (3) is how often programs go there and back;
// FRMPS_TEST_MIGRATE_KILLS (8) how often something is killed in a sweep.

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/lib/suite.h"
#include "tests/system/belongings.h"
#include "tests/system/driver.h"
#include "tests/system/family.h"
#include "tests/system/migration.h"
#include "tests/system/status.h"

#define MIB (UINT64_C(1) << 20)
/* An address that programs choose. */
#define CHOSEN UINT64_C(0x300000000000)

static void expect_at(const struct family *family, int place)
{
	for (int i = 0; i < FAMILY; i++)
		ck_assert_int_eq(migration_place(family->members[i].pid), place);
}

/* The order names one of them. */
static void expect_family_moved(const struct family *family, int which, int to)
{
	expect_at(family, 1 - to);
	expect_moved(&family->members[which], to);
	expect_at(family, to);
}

/* The same of programs that are now and then in the middle of something. */
static void move_family_in_the_end(const struct family *family, int which, int to)
{
	char text[MIGRATION_TEXT], word[2] = {(char)('0' + to), '\0'};

	while (!migrate(&family->members[which], 1 - to, word, text, sizeof(text)))
		ck_assert_msg(strstr(text, "try again"), "%s", text);
	expect_at(family, to);
}

static void expect_nothing_left(void)
{
	for (unsigned i = 0; i < 2; i++) {
		const struct service one = migration_device(i);

		status_await_no_memory(&one);
		ck_assert_int_eq(status_counter(&one, "faults"), 0);
		ck_assert_int_eq(status_counter(&one, "sessions_rejected"), 0);
	}
}

static const char *const configurations[] = {MIGRATION_PHYSICAL, MIGRATION_LOGICAL};

TEST_LOOP(sets, programs_that_share_go_there_and_back, 0, 2)
{
	const int times = migration_rounds("FRMPS_TEST_MIGRATE_ROUNDS", 3);
	struct service first, second;
	struct family family;
	struct child other;

	migration_start(configurations[_i]);
	first = migration_device(0);
	second = migration_device(1);
	other = belongings_begin(belongings_keeper, 1);
	family = family_begin(2 * times);
	for (int i = 0; i < 2 * times; i++) {
		expect_family_moved(&family, i / 2 % 2, 1 - i % 2);
		family_see_it_work(&family);
	}
	ck_assert_int_eq(migration_place(other.pid), 0);
	ck_assert_int_eq(status_counter(&first, "sessions_migrated"), FAMILY * times);
	ck_assert_int_eq(status_counter(&second, "sessions_migrated"), FAMILY * times);
	see_it_work(&other);
	family_end(&family);
	ck_assert_int_eq(child_end(&other), 0);
	expect_nothing_left();
}

TEST(sets, programs_that_share_and_work_go_together)
{
	const int times = migration_rounds("FRMPS_TEST_MIGRATE_ROUNDS", 3);
	struct family family;

	migration_start(MIGRATION_LOGICAL);
	family = family_begin_busy();
	for (int i = 0; i < 2 * times; i++) {
		for (int j = 0; j < FAMILY; j++) {
			child_drain(&family.members[j]);
			child_wait(&family.members[j], 1);
		}
		move_family_in_the_end(&family, i % 2, 1 - i % 2);
	}
	family_end(&family);
	expect_nothing_left();
}

/* Shared memory counts once, also on the device that it comes to. */
TEST(sets, shared_memory_is_there_once)
{
	struct family family;
	struct service second;
	long long had = 0, has = 0;

	migration_start(MIGRATION_LOGICAL);
	second = migration_device(1);
	family = family_begin(1);
	for (int i = 0; i < FAMILY; i++) {
		const struct service first = migration_device(0);

		had += status_number(&first, family.members[i].pid, "memory_bytes");
	}
	expect_family_moved(&family, 0, 1);
	/* Members come back one after the other, the last ones after the order's answer. */
	family_see_it_work(&family);
	for (int i = 0; i < FAMILY; i++)
		has += status_number(&second, family.members[i].pid, "memory_bytes");
	ck_assert_int_eq(has, had);
	family_end(&family);
	expect_nothing_left();
}

/* Each has executors of its own here, and there they find the same ones. */
TEST(sets, members_may_have_executors_of_their_own)
{
	struct family family;
	struct service first;
	char text[400] = "";

	migration_start(MIGRATION_LOGICAL);
	first = migration_device(0);
	family = family_begin(2);
	ck_assert(status_isolate(&first, family.members[1].pid, text, sizeof(text)));
	move_family_in_the_end(&family, 0, 1);
	family_see_it_work(&family);
	expect_family_moved(&family, 1, 0);
	family_see_it_work(&family);
	family_end(&family);
	expect_nothing_left();
}

TEST(sets, who_is_paused_and_away_holds_them_up_there_as_well)
{
	struct family family;
	char text[400];

	migration_start(MIGRATION_LOGICAL);
	family = family_begin(1);
	while (!migration_order(0, "suspend", &family.members[0], "now", text, sizeof(text)))
		ck_assert_msg(strstr(text, "try again"), "%s", text);
	expect_family_moved(&family, 1, 1);
	for (int i = 0; i < FAMILY; i++) {
		const struct service second = migration_device(1);

		ck_assert(status_is_in(&second, family.members[i].pid, "suspended"));
	}
	child_order(&family.members[1]);
	pass_time(100);
	ck_assert(!child_progresses(&family.members[1]));
	ck_assert(migration_order(1, "resume", &family.members[0], NULL, text, sizeof(text)));
	child_wait(&family.members[1], 1);
	see_it_work(&family.members[0]);
	family_end(&family);
	expect_nothing_left();
}

/*
 * Handles
 */

/* A program on a device opens, once they have gone, a handle that is as old as the family. */
TEST_LOOP(sets, a_handle_of_before_is_good_on_each_device, 0, 2)
{
	struct family family;
	struct child importer;

	migration_start(MIGRATION_LOGICAL);
	setenv("CUDA_VISIBLE_DEVICES", _i ? "1" : "0", 1);
	importer = family_expect_late();
	unsetenv("CUDA_VISIBLE_DEVICES");
	family = family_begin(1);
	expect_family_moved(&family, 0, 1);
	see_it_work(&importer);
	ck_assert_int_eq(child_end(&importer), 0);
	family_see_it_work(&family);
	family_end(&family);
	expect_nothing_left();
}

/* They may still be here, on the way, or there: the import waits, and finds them. */
TEST_LOOP(sets, an_import_meanwhile_finds_them, 0, 4)
{
	struct family family;
	struct child importer;

	migration_start(MIGRATION_LOGICAL);
	setenv("CUDA_VISIBLE_DEVICES", _i % 2 ? "1" : "0", 1);
	importer = family_expect_late();
	unsetenv("CUDA_VISIBLE_DEVICES");
	family = family_begin(1);
	migration_ask(&family.members[0]);
	pass_time(20 + 60 * (_i / 2));
	see_it_work(&importer);
	migration_asked();
	ck_assert_int_eq(child_end(&importer), 0);
	family_see_it_work(&family);
	ck_assert_int_eq(settled_place(family.members[0].pid), settled_place(family.members[1].pid));
	family_end(&family);
	expect_nothing_left();
}

/* A program's own handle is no program's to open, wherever it has been made. */
static int opener(int progress, int orders)
{
	CUipcMemHandle handles[2];
	CUdeviceptr memory, opened;
	CUresult r = CUDA_ERROR_INVALID_CONTEXT;

	driver_open();
	memory = belongings_filled(1024);
	ck_cuda(cuIpcGetMemHandle(&handles[0], memory));
	report(progress);
	ordered(orders, true);
	memory = belongings_filled(1024);
	ck_cuda(cuIpcGetMemHandle(&handles[1], memory));
	for (int i = 0; r == CUDA_ERROR_INVALID_CONTEXT && i < 2; i++)
		r = cuIpcOpenMemHandle_v2(&opened, handles[i], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
	return r == CUDA_ERROR_INVALID_CONTEXT ? 0 : 2;
}

TEST(sets, nobody_opens_a_handle_of_his_own)
{
	struct child child;

	migration_start(MIGRATION_LOGICAL);
	child = belongings_begin(opener, 0);
	expect_moved(&child, 1);
	child_order(&child);
	ck_assert_int_eq(child_end(&child), 0);
}

TEST(sets, memory_outlives_the_program_that_exported_it)
{
	struct family family;

	migration_start(MIGRATION_LOGICAL);
	family = family_begin(2);
	expect_family_moved(&family, 0, 1);
	family_see_it_work(&family);
	ck_assert_int_eq(kill(family.members[0].pid, SIGKILL), 0);
	ck_assert_int_eq(child_end(&family.members[0]), 1000 + SIGKILL);
	move_in_the_end(&family.members[1]);
	see_it_work(&family.members[1]);
	child_order(&family.members[1]);
	ck_assert_int_eq(child_end(&family.members[1]), 0);
	expect_nothing_left();
}

/*
 * What does not go
 */

/* What two programs share, beside memory of their own. */
enum thing { THING_EVENT, THING_PINNED, THING_MEMORY };

static enum thing thing;
static int between[2];

static CUmemGenericAllocationHandle pinned(int *ret_fd)
{
	const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA}};
	CUmemGenericAllocationHandle handle;

	ck_cuda(cuMemCreate(&handle, 2 * MIB, &properties, 0));
	ck_cuda(cuMemExportToShareableHandle(ret_fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	return handle;
}

static int giver(int progress, int orders)
{
	CUipcEventHandle of_event;
	CUipcMemHandle of_memory;
	CUevent event;
	int fd;

	driver_open();
	if (thing == THING_EVENT) {
		ck_cuda(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
		ck_cuda(cuIpcGetEventHandle(&of_event, event));
		ck_assert_int_eq(write(between[1], &of_event, sizeof(of_event)), sizeof(of_event));
	} else if (thing == THING_PINNED) {
		pinned(&fd);
		pass_fd(between[1], &fd, true);
	} else {
		ck_cuda(cuIpcGetMemHandle(&of_memory, belongings_filled(1024)));
		ck_assert_int_eq(write(between[1], &of_memory, sizeof(of_memory)), sizeof(of_memory));
	}
	report(progress);
	ordered(orders, true);
	return 0;
}

/* Has the chosen address as well. */
static int taker(int progress, int orders)
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr address, memory;
	CUipcEventHandle of_event;
	CUipcMemHandle of_memory;
	CUevent event;
	int fd;

	driver_open();
	ck_cuda(cuMemAddressReserve(&address, 2 * MIB, 0, CHOSEN, 0));
	ck_assert_uint_eq(address, CHOSEN);
	if (thing == THING_EVENT) {
		ck_assert_int_eq(read(between[0], &of_event, sizeof(of_event)), sizeof(of_event));
		ck_cuda(cuIpcOpenEventHandle(&event, of_event));
	} else if (thing == THING_PINNED) {
		pass_fd(between[0], &fd, false);
		ck_cuda(cuMemImportFromShareableHandle(
			&handle, (void *)(uintptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	} else {
		ck_assert_int_eq(read(between[0], &of_memory, sizeof(of_memory)), sizeof(of_memory));
		ck_cuda(cuIpcOpenMemHandle_v2(&memory, of_memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	}
	report(progress);
	ordered(orders, true);
	return 0;
}

static void begin_pair(enum thing what, struct child *ret_giver, struct child *ret_taker)
{
	thing = what;
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, between), 0);
	*ret_giver = child_start(giver);
	*ret_taker = child_start(taker);
	child_wait(ret_giver, 1);
	child_wait(ret_taker, 1);
	close(between[0]);
	close(between[1]);
}

static void end_pair(struct child *one, struct child *other)
{
	child_order(one);
	child_order(other);
	ck_assert_int_eq(child_end(one), 0);
	ck_assert_int_eq(child_end(other), 0);
}

/* Only device memory makes them one set. */
TEST_LOOP(sets, who_shares_something_else_stays, THING_EVENT, THING_MEMORY)
{
	struct child one, other;

	migration_start(MIGRATION_LOGICAL);
	begin_pair((enum thing)_i, &one, &other);
	expect_refused(&one, "1", "shares events or pinned memory with session");
	expect_refused(&other, "1", "shares events or pinned memory with session");
	child_order(&other);
	ck_assert_int_eq(child_end(&other), 0);
	move_in_the_end(&one);
	child_order(&one);
	ck_assert_int_eq(child_end(&one), 0);
	expect_nothing_left();
}

static int at_the_address(int progress, int orders)
{
	CUdeviceptr address;

	setenv("CUDA_VISIBLE_DEVICES", "1", 1);
	driver_open();
	ck_cuda(cuMemAddressReserve(&address, 2 * MIB, 0, CHOSEN, 0));
	ck_assert_uint_eq(address, CHOSEN);
	report(progress);
	ordered(orders, true);
	return 0;
}

/* What is in the way of one is in the way of both, whichever is to go. */
TEST(sets, what_one_cannot_keep_all_stay_for)
{
	struct child one, other, there;
	struct service first;

	migration_start(MIGRATION_LOGICAL);
	first = migration_device(0);
	there = belongings_begin(at_the_address, 0);
	begin_pair(THING_MEMORY, &one, &other);
	expect_refused(&one, "1", "its addresses are another program's");
	expect_refused(&other, "1", "its addresses are another program's");
	ck_assert_int_eq(migration_place(one.pid), 0);
	ck_assert_int_eq(status_counter(&first, "sessions_suspended"), 0);
	child_order(&there);
	ck_assert_int_eq(child_end(&there), 0);
	move_in_the_end(&one);
	ck_assert_int_eq(migration_place(other.pid), 1);
	end_pair(&one, &other);
	expect_nothing_left();
}

/* On the other device: closes the giver's memory at the order, and ends at the next. */
static int borrower(int progress, int orders)
{
	CUdeviceptr memory;
	CUipcMemHandle handle;

	setenv("CUDA_VISIBLE_DEVICES", "1", 1);
	driver_open();
	ck_assert_int_eq(read(between[0], &handle, sizeof(handle)), sizeof(handle));
	ck_cuda(cuIpcOpenMemHandle_v2(&memory, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	report(progress);
	ordered(orders, true);
	ck_cuda(cuIpcCloseMemHandle(memory));
	report(progress);
	ordered(orders, true);
	return 0;
}

/* It goes once the other device has its memory no more. */
TEST(sets, memory_that_was_lent_goes_when_it_is_given_back)
{
	struct child lender, there;

	migration_start(MIGRATION_LOGICAL);
	thing = THING_MEMORY;
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, between), 0);
	lender = child_start(giver);
	there = child_start(borrower);
	child_wait(&lender, 1);
	child_wait(&there, 1);
	expect_refused(&lender, "1", "shares device memory with other devices");
	expect_refused(&there, "0", "shares device memory with other devices");
	child_order(&there);
	child_wait(&there, 1);
	move_in_the_end(&lender);
	move_in_the_end(&there);
	ck_assert_int_eq(migration_place(lender.pid), 1);
	ck_assert_int_eq(migration_place(there.pid), 0);
	close(between[0]);
	close(between[1]);
	end_pair(&lender, &there);
	expect_nothing_left();
}

static int keeper_there(int progress, int orders)
{
	setenv("CUDA_VISIBLE_DEVICES", "1", 1);
	return belongings_keeper(progress, orders);
}

/* There is a place for one more program. */
TEST(sets, all_of_them_need_a_place)
{
	struct child one, other, there[2];

	migration_start(MIGRATION_LOGICAL "clients_max = 3\n");
	for (int i = 0; i < 2; i++)
		there[i] = belongings_begin(keeper_there, 1);
	begin_pair(THING_MEMORY, &one, &other);
	expect_refused(&one, "1", "clients_max");
	ck_assert_int_eq(migration_place(other.pid), 0);
	see_it_work(&there[0]);
	ck_assert_int_eq(child_end(&there[0]), 0);
	move_in_the_end(&one);
	ck_assert_int_eq(migration_place(other.pid), 1);
	end_pair(&one, &other);
	see_it_work(&there[1]);
	ck_assert_int_eq(child_end(&there[1]), 0);
	expect_nothing_left();
}

/* Each may have less there; what is guaranteed to each is not there for both. */
static const struct {
	const char *there, *why;
} limits[] = {{"memory_limit = 1M\n", "(memory_limit)"},
	{"memory_guarantee = 2500M\n", "memory_guarantee of 2500M cannot be kept"}};

TEST_LOOP(sets, limits_there_hold_for_all_of_them, 0, sizeof(limits) / sizeof(*limits))
{
	struct child one, other;
	char config[200];

	snprintf(config, sizeof(config), MIGRATION_LOGICAL "[device 1]\n%s", limits[_i].there);
	migration_start(config);
	begin_pair(THING_MEMORY, &one, &other);
	expect_refused(&one, "1", limits[_i].why);
	expect_refused(&other, "1", limits[_i].why);
	ck_assert_int_eq(migration_place(one.pid), 0);
	end_pair(&one, &other);
	expect_nothing_left();
}

/*
 * Kills
 */

static void sweep(bool only_daemons, struct family *family)
{
	const int kills = migration_rounds("FRMPS_TEST_MIGRATE_KILLS", 8);
	int daemons = 0;

	srand(41);
	for (int i = 0; i < kills; i++) {
		int place;

		migrate_among_kills(&family->members[i % 2], only_daemons, &daemons);
		place = settled_place(family->members[0].pid);
		ck_assert_int_eq(settled_place(family->members[1].pid), place);
		if (only_daemons)
			for (int j = 0; j < FAMILY; j++) {
				child_drain(&family->members[j]);
				child_wait(&family->members[j], 2);
			}
		else
			family_see_it_work(family);
	}
	move_in_the_end(&family->members[0]);
	family_end(family);
	for (unsigned i = 0; i < 2; i++) {
		const struct service one = migration_device(i);

		status_await_no_memory(&one);
	}
}

TEST(sets, kills_at_any_moment_harm_no_program_that_shares)
{
	struct family family;

	migration_start(MIGRATION_LOGICAL);
	family = family_begin(migration_rounds("FRMPS_TEST_MIGRATE_KILLS", 8));
	sweep(false, &family);
}

TEST(sets, daemons_that_die_harm_no_work)
{
	struct family family;

	migration_start(MIGRATION_LOGICAL);
	family = family_begin_busy();
	sweep(true, &family);
}

/* The other one is here or there, and has all of its memory. */
TEST(sets, one_that_dies_on_the_way_leaves_the_other_all_of_it)
{
	const int kills = migration_rounds("FRMPS_TEST_MIGRATE_KILLS", 8);

	migration_start(MIGRATION_LOGICAL);
	srand(43);
	for (int i = 0; i < kills; i++) {
		struct family family = family_begin(1);
		struct child *goes = &family.members[i % 2], *stays = &family.members[!(i % 2)];

		migration_ask(&family.members[i / 2 % 2]);
		pass_time(1 + rand() % 200);
		ck_assert_int_eq(kill(goes->pid, SIGKILL), 0);
		ck_assert_int_eq(child_end(goes), 1000 + SIGKILL);
		migration_asked();
		settled_place(stays->pid);
		see_it_work(stays);
		child_order(stays);
		ck_assert_int_eq(child_end(stays), 0);
		expect_nothing_left();
	}
}

int main(void)
{
	Suite *suite = suite_create("migrate_sets");
	TCase *tests = tcase_create("sets");

	tcase_set_timeout(tests, 600);
	tcase_add_checked_fixture(tests, NULL, migration_stop);
	suite_add(tests, "sets");
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
