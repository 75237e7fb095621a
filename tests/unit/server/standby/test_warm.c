// What standbys are told of programs that load code and make graphs, and when.

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "server/session/domain.h"
#include "server/session/session.h"
#include "server/worker/worker.h"
#include "tests/lib/suite.h"
#include "tests/unit/server/fake_children.h"

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)
#define MANY  600u

static struct fake *fake;
static struct fake_child *active, *standby;
static struct fake_client client;

static void begin(void)
{
	fake = fake_new(1);
	fake_boot(fake);
	active = &fake->children[1];
	standby = &fake->children[2];
	fake_join(fake, &client, active, standby);
	/* Whatever the machine is busy with: nothing is told before the test lets it. */
	fake_stop_clock(true);
}

static void end(void)
{
	fake_stop_clock(false);
	fake_leave(fake, &client);
	packet_close_fds(&fake->packet);
	fake_free(fake);
}

/* The active executor does what the program asks for. */
static void ask(struct wire_message *request, int fd)
{
	fake_request(fake, &client, request, fd);
	fake_serve(fake, active, request->type);
	fake_expect(fake, client.socket, WIRE_REPLY);
	ck_assert_int_eq(fake->message.reply.code, 0);
}

static void load(uint32_t module)
{
	struct wire_message load = {.type = WIRE_LOAD_MODULE, .load_module = {.module = module, .bytes = 64}};
	int fd = fake_memfd(64, SEALS);

	ask(&load, fd);
	close(fd);
}

static void find(uint32_t module, uint32_t function)
{
	struct wire_message find = {.type = WIRE_FIND_FUNCTION,
		.symbol = {.module = module, .function = function, .name = "kernel"}};

	ask(&find, -1);
}

static void unload(uint32_t module)
{
	struct wire_message unload = {.type = WIRE_UNLOAD_MODULE, .symbol = {.module = module}};

	ask(&unload, -1);
}

static void make_graph(uint32_t id)
{
	struct wire_message make = {.type = WIRE_MAKE_GRAPH, .graph = {id, 64, 0}};
	int fd = fake_memfd(64, SEALS);

	ask(&make, fd);
	close(fd);
}

static void drop_graph(uint32_t id)
{
	struct wire_message drop = {.type = WIRE_DROP_GRAPH, .graph = {id, 0, 0}};

	ask(&drop, -1);
}

TEST(warm, who_loads_and_unloads_owes_standbys_nothing)
{
	begin();
	for (uint32_t i = 0; i < 20; i++) {
		load(1);
		find(1, 1);
		make_graph(1);
		drop_graph(1);
		ck_assert_uint_gt(standby->worker->mirrors, 0); /* not in step */
		/* Its graphs are gone, so nobody needs the module any more. */
		unload(1);
	}
	fake_tell(fake);
	fake_expect_nothing(fake, standby->socket);
	ck_assert_uint_eq(standby->worker->mirrors, 0);
	end();
}

TEST(warm, what_stays_is_told_in_its_order)
{
	begin();
	load(1);
	find(1, 1);
	load(2);
	unload(2);
	fake_expect_nothing(fake, standby->socket);
	fake_serve(fake, standby, WIRE_LOAD_MODULE);
	ck_assert_uint_eq(fake->message.type, WIRE_LOAD_MODULE);
	fake_serve(fake, standby, WIRE_FIND_FUNCTION);
	fake_expect_nothing(fake, standby->socket);
	ck_assert_uint_eq(standby->worker->mirrors, 0);
	/* What they know they are told the end of at once. */
	unload(1);
	fake_serve(fake, standby, WIRE_UNLOAD_MODULE);
	ck_assert_uint_eq(standby->worker->mirrors, 0);
	end();
}

TEST(warm, a_graph_comes_before_the_end_of_its_module)
{
	begin();
	load(1);
	fake_serve(fake, standby, WIRE_LOAD_MODULE);
	make_graph(5);
	unload(1);
	fake_serve(fake, standby, WIRE_MAKE_GRAPH);
	fake_serve(fake, standby, WIRE_UNLOAD_MODULE);
	end();
}

TEST(warm, a_standby_is_told_no_more_than_it_takes)
{
	uint32_t told = 0;

	begin();
	for (uint32_t i = 1; i <= MANY; i++)
		load(i);
	fake_expect(fake, standby->socket, WIRE_LOAD_MODULE);
	ck_assert_uint_lt(standby->worker->mirrors, MANY);
	do {
		fake_reply(fake, standby->socket, fake->message.id, 0, NULL, 0);
		ck_assert_uint_eq(fake->message.load_module.module, ++told);
		if (told < MANY)
			fake_expect(fake, standby->socket, WIRE_LOAD_MODULE);
	} while (told < MANY);
	fake_tell(fake);
	ck_assert_uint_eq(standby->worker->mirrors, 0);
	end();
}

TEST(warm, who_takes_over_is_told_first)
{
	begin();
	load(1);
	find(1, 1);
	fake_reap(fake, active, SIGKILL);
	fake_expect(fake, standby->socket, WIRE_LOAD_MODULE);
	fake_reply(fake, standby->socket, fake->message.id, 0, NULL, 0);
	fake_serve(fake, standby, WIRE_FIND_FUNCTION);
	fake_serve(fake, standby, WIRE_ACTIVATE);
	end();
}

/* A pointer to a constant would lead to another module's. */
TEST_LOOP(warm, constants_must_be_where_they_were, 0, 2)
{
	struct wire_message request = {.type = WIRE_LOAD_MODULE, .load_module = {.module = 1, .bytes = 64}};
	uint64_t values[] = {1, 0, 0x777702, 0, 0, 0x900000};
	int fd = fake_memfd(64, SEALS);

	begin();
	fake_request(fake, &client, &request, fd);
	close(fd);
	fake_expect(fake, active->socket, WIRE_LOAD_MODULE);
	fake_reply(fake, active->socket, fake->message.id, 0, values, 6);
	fake_expect(fake, client.socket, WIRE_REPLY);
	fake_expect(fake, standby->socket, WIRE_LOAD_MODULE);
	ck_assert_uint_eq(fake->message.load_module.code, 0x777702);
	values[5] += 65536 * (uint64_t)_i;
	fake_reply(fake, standby->socket, fake->message.id, 0, values, 6);
	ck_assert_uint_eq(standby->worker->immovable_count, (uint32_t)_i);
	end();
}

/* One that starts meanwhile is told of everything, once. */
TEST(warm, a_new_standby_is_told_once)
{
	struct fake_child *other;

	begin();
	fake_reap(fake, standby, SIGKILL);
	FAKE_SKIP_WHILE(fake, fake->child_count <= 3);
	other = &fake->children[3];
	load(1);
	fake_ready(fake, other);
	fake_serve(fake, other, WIRE_OPEN_SESSION);
	fake_serve(fake, other, WIRE_LOAD_MODULE);
	fake_serve(fake, other, WIRE_PING);
	load(2);
	fake_serve(fake, other, WIRE_LOAD_MODULE);
	ck_assert_uint_eq(other->worker->mirrors, 0);
	fake_expect_nothing(fake, other->socket);
	end();
}

int main(void)
{
	Suite *suite;
	TCase *tests;

	fake_prepare();
	suite = suite_create("warm");
	tests = suite_case(suite, "warm");
	suite_add(tests, "warm");
	return suite_run(suite);
}
