// The table of transfers: two processes that look at the same transfer see the same outcome.

#include "server/transfer.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/suite.h"

#define RACES 300

static struct transfers *transfers;

static void set_up(void)
{
	transfers = transfers_new();
	ck_assert_ptr_nonnull(transfers);
}

static void tear_down(void)
{
	munmap(transfers, sizeof(*transfers));
}

TEST(transfer, one_outcome_is_final)
{
	struct transfer taken = transfer_open(transfers, 0, 1), closed = transfer_open(transfers, 1, 0);

	ck_assert(transfer_take(transfers, &taken));
	ck_assert(!transfer_close(transfers, &taken));
	ck_assert(!transfer_close(transfers, &taken));
	ck_assert(!transfer_take(transfers, &taken));
	ck_assert(transfer_close(transfers, &closed));
	ck_assert(!transfer_take(transfers, &closed));
	ck_assert(transfer_close(transfers, &closed));
}

TEST(transfer, an_old_transfer_is_closed)
{
	struct transfer old = transfer_open(transfers, 2, 3), next = transfer_open(transfers, 2, 3);

	ck_assert_uint_ne(old.number, next.number);
	ck_assert(!transfer_take(transfers, &old));
	ck_assert(transfer_close(transfers, &old));
	ck_assert(transfer_take(transfers, &next));
}

TEST(transfer, numbers_begin_anew)
{
	struct transfer transfer = {.from = 5, .to = 6};

	word_set(&transfers->words[5][6], UINT32_MAX);
	transfer = transfer_open(transfers, 5, 6);
	ck_assert_uint_eq(transfer.number, 1);
	ck_assert(transfer_take(transfers, &transfer));
}

/* Giver and receiver at the same moment. */
TEST(transfer, exactly_one_of_two_processes_has_it)
{
	for (int i = 0; i < RACES; i++) {
		const struct transfer transfer = transfer_open(transfers, 0, 1);
		pid_t pid = fork();
		int status;
		bool keeps;

		if (pid == 0)
			_exit(transfer_take(transfers, &transfer));
		keeps = transfer_close(transfers, &transfer);
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
		ck_assert(WIFEXITED(status));
		ck_assert_int_eq(WEXITSTATUS(status), !keeps);
	}
}

int main(void)
{
	Suite *suite = suite_create("transfer");
	TCase *tests = tcase_create("transfer");

	tcase_add_checked_fixture(tests, set_up, tear_down);
	suite_add(tests, "transfer");
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
