// Who may send what, by the table of messages.

#include "server/session/message.h"
#include "tests/lib/suite.h"

TEST(message, every_message_has_a_row_and_a_sender)
{
	for (int type = WIRE_HELLO; type < WIRE_TYPES; type++) {
		ck_assert_uint_ne(message_row(type)->senders, 0);
		/* What is routed comes from clients, and what is kept is routed. */
		ck_assert((message_row(type)->route == ROUTE_NONE) !=
			  !!(message_row(type)->senders & FROM_CLIENT));
		ck_assert(message_row(type)->keep == KEEP_NOTHING || message_row(type)->route != ROUTE_NONE);
	}
}

TEST(message, only_senders_may_send)
{
	ck_assert(message_allowed(WIRE_HELLO, FROM_STRANGER));
	ck_assert(!message_allowed(WIRE_HELLO, FROM_CLIENT));
	ck_assert(message_allowed(WIRE_LOAD_MODULE, FROM_CLIENT));
	ck_assert(!message_allowed(WIRE_LOAD_MODULE, FROM_STRANGER));
	ck_assert(!message_allowed(WIRE_ACTIVATE, FROM_CLIENT));
	ck_assert(!message_allowed(WIRE_CREATE_CHUNK, FROM_CLIENT));
	ck_assert(!message_allowed(WIRE_ADMIN, FROM_CLIENT));
	ck_assert(!message_allowed(WIRE_NONE, FROM_CLIENT));
	ck_assert(!message_allowed(WIRE_TYPES + 5, FROM_CLIENT));
}

int main(void)
{
	Suite *suite = suite_create("message");
	TCase *tests = suite_case(suite, "message");

	suite_add(tests, "message");
	return suite_run(suite);
}
