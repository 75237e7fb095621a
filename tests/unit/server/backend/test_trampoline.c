// The trampolines of a context, on a driver of the test's own: room for constants in their banks,
// and how much local memory they bring.

#include "server/backend/cuda/trampoline.h"
#include "server/backend/trampoline_image.h"
#include "tests/lib/suite.h"
#include "tests/unit/server/backend/fake_libraries.h"

#define BANKS	   8u
#define MOST	   0x7f00u
#define SMALL	   256u
#define LOCAL	   1024u
#define MODULES	   50u
#define UNIT_BYTES 256u

static void open_trampolines(void)
{
	fake_libraries_open();
	ck_assert(trampolines_open(0, LOCAL));
}

static void close_trampolines(void)
{
	trampolines_close();
}

static bool overlap(const struct trampoline_room *one, const struct trampoline_room *other)
{
	uint64_t a = trampolines_room_at(one), b = trampolines_room_at(other);

	return a < b + other->bytes && b < a + one->bytes;
}

/* A program with many small modules, as CuPy's are, leaves room for others. */
TEST(rooms, many_modules_have_constants)
{
	struct trampoline_room rooms[2 * MODULES];

	for (unsigned i = 0; i < 2 * MODULES; i++) {
		ck_assert(trampolines_take_room(SMALL + i, MOST, i % 2 + 1, &rooms[i]));
		ck_assert_uint_le(rooms[i].offset, MOST);
		for (unsigned j = 0; j < i; j++)
			ck_assert(!overlap(&rooms[i], &rooms[j]));
	}
	for (unsigned i = 0; i < 2 * MODULES; i++)
		trampolines_give_room(&rooms[i]);
	for (unsigned i = 0; i < BANKS; i++)
		ck_assert(trampolines_take_room(TRAMPOLINE_BANK_BYTES, 0, 1, &rooms[i]));
	ck_assert(!trampolines_take_room(SMALL, MOST, 1, &rooms[BANKS]));
}

/* Their code knows the bank's address. */
TEST(rooms, constants_that_cannot_move_begin_their_bank)
{
	struct trampoline_room rooms[BANKS + 1];

	for (unsigned i = 0; i < BANKS; i++) {
		ck_assert(trampolines_take_room(SMALL, 0, 1, &rooms[i]));
		ck_assert_uint_eq(rooms[i].offset, 0);
	}
	ck_assert(!trampolines_take_room(SMALL, 0, 1, &rooms[BANKS]));
	ck_assert(trampolines_take_room(SMALL, UNIT_BYTES, 1, &rooms[BANKS]));
	ck_assert_uint_eq(rooms[BANKS].offset, UNIT_BYTES);
}

/* In the other executor of a program. */
TEST(rooms, another_has_the_same_room)
{
	struct trampoline_room first, second, same;
	uint64_t at;

	ck_assert(trampolines_take_room(SMALL, MOST, 1, &first));
	ck_assert(trampolines_take_room(3 * SMALL, MOST, 1, &second));
	at = trampolines_room_at(&second);
	trampolines_close();
	open_trampolines();
	same = (struct trampoline_room){.bank = second.bank, .offset = second.offset, .bytes = 3 * SMALL};
	ck_assert(trampolines_take_same_room(&same));
	ck_assert_uint_eq(trampolines_room_at(&same), at);
	same = (struct trampoline_room){
		.bank = second.bank, .offset = second.offset + 2 * UNIT_BYTES, .bytes = SMALL};
	ck_assert(!trampolines_take_same_room(&same));
}

TEST(rooms, rooms_that_are_none_are_refused)
{
	static const struct trampoline_room none[] = {{.bank = 0, .bytes = SMALL},
		{.bank = BANKS + 1, .bytes = SMALL}, {.bank = 1, .offset = 8, .bytes = SMALL},
		{.bank = 1, .offset = UNIT_BYTES, .bytes = TRAMPOLINE_BANK_BYTES}};

	for (unsigned i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
		struct trampoline_room room = none[i];

		ck_assert(!trampolines_take_same_room(&room));
		trampolines_give_room(&room);
	}
}

/* Of the trampoline for a kernel without constants; UINT32_MAX: there is none. */
static uint32_t local_for(uint32_t needed)
{
	const struct trampoline *found = trampolines_find(NULL, needed, 40, 1, 100);

	return found ? found->local : UINT32_MAX;
}

TEST(rooms, kernels_get_the_local_memory_that_they_need)
{
	struct trampoline_room room;

	ck_assert_uint_eq(local_for(LOCAL), 0);
	ck_assert_uint_eq(local_for(LOCAL + 1), 2048);
	ck_assert_uint_eq(local_for(2048), 2048);
	ck_assert_uint_eq(local_for(5000), 8192);
	ck_assert_uint_eq(local_for(16384), 16384);
	ck_assert_uint_eq(local_for(16385), UINT32_MAX);
	/* With constants, what the context has at first. */
	ck_assert(trampolines_take_room(SMALL, MOST, 1, &room));
	ck_assert_ptr_nonnull(trampolines_find(room.set, LOCAL, 40, 1, 100));
	ck_assert_ptr_null(trampolines_find(room.set, LOCAL + 1, 40, 1, 100));
}

int main(void)
{
	Suite *suite = suite_create("trampoline");
	TCase *rooms = suite_case(suite, "rooms");

	tcase_add_checked_fixture(rooms, open_trampolines, close_trampolines);
	suite_add(rooms, "rooms");
	return suite_run(suite);
}
