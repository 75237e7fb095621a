// Mirrors of constants: what a session's commands write there goes on to the constant, and at a
// takeover all of it does.

#include "server/executor/constant.h"
#include "server/executor/variable.h"
#include "tests/lib/suite.h"
#include "tests/unit/server/executor/fixture.h"

#define MIRROR	 (FIXTURE_WINDOW + 4096)
#define BYTES	 64
#define CONSTANT UINT64_C(0x7000000000)
#define MODULE	 3

static const struct constant first = {{MIRROR, MIRROR + BYTES}, CONSTANT, MODULE};
static const struct constant second = {{MIRROR + 256, MIRROR + 256 + BYTES}, CONSTANT + 4096, MODULE + 1};

static void open_tenant(void)
{
	fixture_open_default();
	ck_assert_int_eq(variable_open(&fixture.executor), CUDA_SUCCESS);
	fake.count = 0;
	ck_assert_int_eq(constant_add(fixture.tenant, &second), CUDA_SUCCESS);
	ck_assert_int_eq(constant_add(fixture.tenant, &first), CUDA_SUCCESS);
}

static void close_tenant(void)
{
	variable_close(&fixture.executor);
	fixture_close();
}

/* A copy to an address, from another. */
static void expect_copy(unsigned n, uint64_t dst, uint64_t src)
{
	const struct fake_call *call = fake_call(FAKE_COPY, n);

	ck_assert_ptr_nonnull(call);
	ck_assert_uint_eq((uintptr_t)call->object, dst);
	ck_assert_uint_eq(call->value, src);
}

/* Before the command's mark: who is told that it is done may rely on both. */
TEST(constant, copies_go_on_before_their_mark)
{
	const struct frmps_copy body = {
		.dst = MIRROR + 8, .src = FIXTURE_WINDOW + 8192, .width = 16, .height = 1, .depth = 1};

	fixture_put(FRMPS_OP_COPY, 1, FRMPS_CMD_MARK, &body, sizeof(body));
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_COPY), 2);
	expect_copy(0, MIRROR + 8, FIXTURE_WINDOW + 8192);
	expect_copy(1, CONSTANT + 8, MIRROR + 8);
	ck_assert_ptr_eq(fake_call(FAKE_COPY, 0)->stream, fake_call(FAKE_COPY, 1)->stream);
	ck_assert_int_lt(fake_position(FAKE_COPY, 1), fake_position(FAKE_MARK, 0));
}

TEST(constant, sets_and_words_go_on)
{
	const struct frmps_write_value word = {.address = MIRROR + 4, .value = 7, .bytes = 4};

	fixture_set(1, MIRROR, BYTES);
	fixture_turn();
	expect_copy(0, CONSTANT, MIRROR);
	fixture_put(FRMPS_OP_WRITE_VALUE, 1, 0, &word, sizeof(word));
	fixture_turn();
	expect_copy(1, CONSTANT + 4, MIRROR + 4);
	ck_assert_int_lt(fake_position(FAKE_WRITE, 0), fake_position(FAKE_COPY, 1));
}

/* Words of arguments, and the constants that they are in the mirror of. */
static const struct {
	uint64_t words[4];
	uint64_t onto[4];
} pointers[] = {
	{{1, MIRROR, 2, 3}, {CONSTANT}},
	{{MIRROR + BYTES - 1, MIRROR + 256, 5, 6}, {CONSTANT, CONSTANT + 4096}},
	{{MIRROR + 8, MIRROR + 16, 0, MIRROR + 256 + BYTES}, {CONSTANT, CONSTANT}},
	{{MIRROR - 1, MIRROR + BYTES, CONSTANT, UINT64_MAX}, {0}},
};

TEST_LOOP(constant, arguments_point_at_constants, 0, sizeof(pointers) / sizeof(pointers[0]))
{
	struct backend_copy copy;
	uint32_t offset = 0;

	for (int i = 0; pointers[_i].onto[i]; i++) {
		ck_assert(constant_pointed_at(&fixture.tenant->constants, (const uint8_t *)pointers[_i].words,
			sizeof(pointers[_i].words), &offset, &copy));
		ck_assert_uint_eq(copy.dst, pointers[_i].onto[i]);
		ck_assert_uint_eq(copy.src, MIRROR + (copy.dst == CONSTANT ? 0 : 256));
		ck_assert_uint_eq(copy.width, BYTES);
	}
	ck_assert(!constant_pointed_at(&fixture.tenant->constants, (const uint8_t *)pointers[_i].words,
		sizeof(pointers[_i].words), &offset, &copy));
	/* No half of a word. */
	offset = 0;
	ck_assert(!constant_pointed_at(
		&fixture.tenant->constants, (const uint8_t *)&first.mirror.start, 7, &offset, &copy));
}

TEST(constant, what_is_beside_or_only_read_goes_nowhere)
{
	fixture_copy(1, MIRROR + BYTES, MIRROR, 192, 0);
	fixture_copy(1, MIRROR - 64, MIRROR + 256, 64, 0);
	fixture_set(1, MIRROR + 256 + BYTES, 4);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_COPY), 2);
	ck_assert_uint_eq(fixture_offences(), 0);
}

/* No variable is like that, so no program that keeps to the rules does it. */
TEST_LOOP(constant, more_than_a_constant_is_an_offence, 0, 4)
{
	static const uint64_t from[] = {MIRROR - 1, MIRROR + 1, MIRROR, MIRROR + 200};
	static const uint64_t bytes[] = {2, BYTES, 512, 57};

	fixture_set(1, from[_i], bytes[_i]);
	fixture_turn();
	ck_assert_uint_eq(fixture_offences(), 1);
	ck_assert_uint_eq(fake_count(FAKE_COPY) + fake_count(FAKE_SET), 0);
}

/* The command itself was handed over. */
TEST(constant, a_constant_that_cannot_be_written_is_a_late_error)
{
	fake.fails[FAKE_COPY] = CUDA_ERROR_INVALID_VALUE;
	fixture_set(1, MIRROR, 4);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_SET), 1);
	ck_assert_uint_eq(word_acquire(&fixture.tenant->view.states[1].issued), 1);
	ck_assert_int_eq((int)word_relaxed(&fixture.client.server->late_error), CUDA_ERROR_INVALID_VALUE);
}

TEST(constant, a_module_takes_its_constants_along)
{
	ck_assert(constant_touches(fixture.tenant, MODULE, MIRROR + BYTES - 1, 1));
	ck_assert(!constant_touches(fixture.tenant, MODULE, MIRROR + BYTES, 1));
	ck_assert(!constant_touches(fixture.tenant, MODULE, MIRROR + 256, 1));
	ck_assert(constant_touches(fixture.tenant, MODULE + 1, MIRROR, 512));
	constant_forget(fixture.tenant, MODULE);
	ck_assert(!constant_touches(fixture.tenant, MODULE, MIRROR, 512));
	fixture_set(1, MIRROR, 4);
	fixture_set(1, MIRROR + 256, 4);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_COPY), 1);
	expect_copy(0, CONSTANT + 4096, MIRROR + 256);
	constant_forget(fixture.tenant, MODULE + 1);
	fixture_set(1, MIRROR + 256, 4);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_COPY), 1);
}

TEST(constant, one_is_known_once_and_in_one_place)
{
	struct constant other = first;

	ck_assert_int_eq(constant_add(fixture.tenant, &first), CUDA_SUCCESS);
	ck_assert_uint_eq(fixture.tenant->constants.count, 2);
	other.at++;
	ck_assert_int_eq(constant_add(fixture.tenant, &other), CUDA_ERROR_INVALID_VALUE);
	other = first;
	other.mirror.end = second.mirror.start + 1;
	ck_assert_int_eq(constant_add(fixture.tenant, &other), CUDA_ERROR_INVALID_VALUE);
}

TEST(constant, there_are_not_too_many)
{
	struct constant one = first;

	for (uint32_t i = 0; i < CONSTANTS_MAX - 2; i++) {
		one.mirror.start = MIRROR + 1024 + UINT64_C(8) * i;
		one.mirror.end = one.mirror.start + 8;
		ck_assert_int_eq(constant_add(fixture.tenant, &one), CUDA_SUCCESS);
	}
	one.mirror.start = one.mirror.end;
	one.mirror.end++;
	ck_assert_int_eq(constant_add(fixture.tenant, &one), CUDA_ERROR_OUT_OF_MEMORY);
	ck_assert_int_eq(constant_add(fixture.tenant, &first), CUDA_SUCCESS);
}

TEST(constant, all_are_refreshed)
{
	fake.immediate = true;
	ck_assert(constant_refresh(fixture.tenant));
	ck_assert_uint_eq(fake_count(FAKE_COPY), 2);
	expect_copy(0, CONSTANT, MIRROR);
	expect_copy(1, CONSTANT + 4096, MIRROR + 256);
	ck_assert_int_lt(fake_position(FAKE_COPY, 1), fake_position(FAKE_MARK, 0));
	fake.fails[FAKE_COPY] = CUDA_ERROR_INVALID_VALUE;
	ck_assert(!constant_refresh(fixture.tenant));
}

/* The device would fault, on nobody's behalf. */
TEST(constant, a_mirror_that_was_given_back_is_not_read)
{
	fake.immediate = true;
	range_set_remove(&fixture.tenant->device, MIRROR + 256, BYTES);
	ck_assert(!constant_refresh(fixture.tenant));
	ck_assert_uint_eq(fake_count(FAKE_COPY), 0);
}

static void next_executor(void)
{
	variable_close(&fixture.executor);
	fixture_kill();
	ck_assert_int_eq(variable_open(&fixture.executor), CUDA_SUCCESS);
	ck_assert_int_eq(constant_add(fixture.tenant, &first), CUDA_SUCCESS);
}

/* Before what is in doubt is repeated. A session that has done nothing has nothing to write. */
TEST(constant, who_takes_over_writes_constants_first)
{
	fake.immediate = true;
	next_executor();
	ck_assert_int_eq(
		takeover_tenant(fixture.tenant, 2, TAKEOVER_BY_POLICY, CUDA_SUCCESS, ""), TAKEOVER_CLEAN);
	ck_assert_uint_eq(fake_count(FAKE_COPY), 0);
	fixture_set(1, MIRROR, 4);
	fake.immediate = false;
	fixture_turn();
	fake.count = 0;
	next_executor();
	fake.immediate = true;
	ck_assert_int_eq(
		takeover_tenant(fixture.tenant, 3, TAKEOVER_BY_POLICY, CUDA_SUCCESS, ""), TAKEOVER_REPEATS);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_COPY), 2);
	ck_assert_int_lt(fake_position(FAKE_COPY, 0), fake_position(FAKE_SET, 0));
	ck_assert_int_lt(fake_position(FAKE_SET, 0), fake_position(FAKE_COPY, 1));
}

int main(void)
{
	Suite *suite = suite_create("constant");
	TCase *tests = tcase_create("constant");

	tcase_add_checked_fixture(tests, open_tenant, close_tenant);
	suite_add(tests, "constant");
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
