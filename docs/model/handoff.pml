/*
 * The way of one lane from its launcher through the dispatcher to a driver, and
 * what is left of it when any of them is killed at any step (L26).
 *
 * One lane, a pool of two slots, one attempt and its retry, OFFERS offers of
 * them, SIGKILL up to KILLS times. Beside them an outsider, which wants the same
 * lane, and a neighbour, which wants a slot of the same pool: each takes what it
 * wants at the first moment the kernel lets it, or gives up.
 *
 * Every process is a loop over its steps. A step is one system call or one
 * commit, with the reading that led to it where nobody can come between. Where a
 * process stands is global, so that whoever kills it can do what the kernel does,
 * in the same step. Time does not exist: whatever waits for a deadline may find
 * it passed at any step. README.md says what is left out, which clause and
 * failpoint a step answers to, and how to read a counterexample.
 *
 * NEIGHBOUR adds the neighbour; with PATIENT, recovery leaves a row waiting whose
 * lane is held in its own name. The macros below `variants` each break one rule;
 * none of them may verify.
 */

#ifndef KILLS
#define KILLS 2 /* alone and in pairs, as in the crash matrix (L25) */
#endif
#ifndef OFFERS
#define OFFERS 3 /* then the lane is held, with the reason (L15a) */
#endif

/*
 * variants:
 * NO_TOKEN      a claim is granted without comparing the token
 * UNLOCK        the launcher unlocks its copy instead of closing it
 * TRUST_ROW     recovery believes the row and does not try the lock
 * SPAWN_FIRST   the driver starts the agent before it creates begun
 * DROP_ROW      recovery deletes a displaced row
 * ONE_LOOK      recovery takes one look at a held lock as proof
 * NO_ARBITER    begun is looked for and written, not created by whoever is first
 * EARLY_CLOSE   the dispatcher closes its copies when it has sent them
 * CLOSE_FIRST   the driver closes the lane before it writes the outcome
 * STALE_OUTCOME recovery reads run.json before the lock and not again
 * FREE_ONLY     an agent that outlived its driver is looked for under a free lock only
 * NO_SEARCH     a free lock whose record names no child is free, agent or not
 * BELIEVE_NO    the launcher takes a refusal for an answer to what it sent before
 * ASK_IS_NO     the launcher takes "unknown attempt" for "refused"
 * ANSWER_FIRST  the answer leaves before the row is committed
 * RESTAMP       a row that waits again gets a new queue_start
 * LEAK          a refusal keeps the descriptor it received
 * NO_DEADLINE   an offer that nobody claims stands for ever
 */

/* ---- who there is ------------------------------------------------------- */

#define L 0            /* launcher */
#define D 1            /* dispatcher, whichever life */
#define O 2            /* outsider: run --lane, or a launcher of other work */
#define V(n) (2 + (n)) /* driver of offer n, from 1 */
#define PROCS (3 + OFFERS)

mtype = {
	Unborn, Gone,
	/* launcher */ LTake, LRead, LSend, LWait, LAgain, LClose,
	/* dispatcher, starting */ DStart, DTake, DTook, DKeep, DDisplace,
	/* dispatcher, at work */ DLoop, DDecide, DOwn, DAnswer, DOffer, DFork, DSend, DHand, DRun,
	DUnoffer, DEnd, DRetake, DRetook, DRequeue, DGone,
	/* dispatcher, judging an open attempt */ DLook, DAgain,
	/* dispatcher, retrying */ DRetry,
	/* driver */ VExec, VClaim, VWait, VProve, VBegin, VAck, VSpawn, VNote, VRun, VTell, VClear, VClose,
	/* outsider */ OTake, ORead, OWrite, OSpawn, OWait, ORun, OClose
};
mtype at[PROCS];
byte kills;

#if OFFERS == 1
#define EACH(f) (f(1))
#define EACHX(f, x) (f(1, x))
#elif OFFERS == 2
#define EACH(f) (f(1) || f(2))
#define EACHX(f, x) (f(1, x) || f(2, x))
#else
#define EACH(f) (f(1) || f(2) || f(3))
#define EACHX(f, x) (f(1, x) || f(2, x) || f(3, x))
#endif

/* ---- the kernel's part: locks ------------------------------------------- */

/*
 * A lock belongs to an open file description. Its number is that of whoever
 * opened it; a later one of the same opener can be locked only when no copy of
 * the earlier is left. Copies lie in processes, in children between fork and
 * exec, and in messages that nobody has received.
 */
#define OL 1
#define OD 2
#define OO 3
#define UNLOCKED 4 /* of a broken variant that opens and does not lock */

byte lane;             /* the description that has the lock; 0: free */
byte fd[PROCS];        /* the copy a process has; 0: none */
byte got;              /* the copy the dispatcher received and has not judged */
byte forked[OFFERS+1]; /* in the child that will be driver n */
byte flying[OFFERS+1]; /* in the answer to driver n's claim */
byte child[OFFERS+1];  /* in the child that will be agent n */
bool mail[3];          /* an enqueue with a copy of OL waits on connection 1, 2 */

/*
 * The slot of an offer goes the way of the lane, in the same messages, and is
 * closed with it; only the dispatcher's copy comes and goes by itself.
 */
byte slot;             /* the dispatcher's copy: which slot; 0: none */
byte seat[OFFERS+1];   /* the slot of offer n */
byte theirslot;        /* the neighbour's */

#define CARRIES(n, x) (fd[V(n)] == x || forked[n] == x || flying[n] == x || child[n] == x)
#define OWNS(n, x) (fd[V(n)] == x || flying[n] == x)
#define CARRIESANY(n) (fd[V(n)] != 0 || forked[n] != 0 || flying[n] != 0 || child[n] != 0)
#define SITS(n, s) (seat[n] == s && CARRIESANY(n))
#define STAYSON(n, s) (seat[n] == s && agent[n] == Alive)

#define COPIED(x) (fd[L] == x || fd[D] == x || fd[O] == x || got == x || \
	(x == OL && (mail[1] || mail[2])) || EACHX(CARRIES, x))

/* What is still there after 25 looks in 100 ms: not a child about to exec, and
   not somebody who only looks (S8, L20). */
#define STAYS(x) (fd[L] == x || fd[D] == x || got == x || \
	(fd[O] == x && at[O] != ORead) || \
	(x == OL && (mail[1] || mail[2])) || EACHX(OWNS, x))

/* Nobody has the lock of slot s, and the record names no living agent (S7). */
#define SLOTFREE(s) (slot != s && theirslot != s && !EACHX(SITS, s) && !EACHX(STAYSON, s))

inline settle() { /* the last copy closed ends the lock (S8) */
	if
	:: lane != 0 && !COPIED(lane) -> lane = 0
	:: else
	fi
}

/* ---- agents, records, and what is on disk ------------------------------- */

mtype = { Unstarted, Forked, Alive, Dead };
mtype agent[OFFERS+1]; /* of driver n */
mtype theirs;          /* of the outsider */

#define LIVES(n) (agent[n] == Alive)
#define STIRS(n) (agent[n] == Forked || agent[n] == Alive)
#define OURS EACH(LIVES)
#define AGENTS (EACH(STIRS) || theirs == Alive)

mtype = { Nobody, Waiting, Driven, Other };
mtype rec;             /* the lane record: waits for us, driven for us, another's (L1) */
byte recby;            /* driven: by which driver */
bool named;            /* the child is in it */

/*
 * A free lock whose record names a living child is held for every taker (S7).
 * Where a driver is gone and its record names no child yet, the agent is found
 * by the run it carries.
 */
#ifdef NO_SEARCH
#define FOUND (named && LIVES(recby))
#else
#define FOUND ((named || at[V(recby)] == Gone) && LIVES(recby))
#endif
#define ORPHANED ((rec == Driven && FOUND) || (rec == Other && theirs == Alive))

inline record(what, by) { rec = what; recby = by; named = 0 }

mtype = { Absent, Queued, Starting, Open, Running, Ended };
mtype row;             /* the database: one row, open or ended attempt */
mtype = { Done, Lost, Displaced };
mtype why;
byte attempt;          /* 1; 2 is its retry */
byte starts;           /* offers so far, and the number of the last */
byte whose[OFFERS+1];     /* the attempt of offer n */
byte token;            /* the hash stored with the row; 0: none */
byte place;            /* queue_start and priority; the launcher's are 1 */

mtype = { Begun, Withdrawn };
mtype begun[OFFERS+1]; /* begun.N, created once (O_EXCL); 0: not there */
bool runjson;          /* the driver wrote an outcome to run.json */

/* ---- sockets ------------------------------------------------------------ */

bool up;               /* the sockets are bound and served */
byte conn;             /* the launcher's connection; 0: none */
bool linked;           /* its other end is open */
bool over;             /* what was sent on connection 1 is not done any more */
byte asking;           /* the connection the dispatcher has a request of */
mtype = { Accepted, Refused, Never, Unknown };
mtype answer;          /* what has come on conn */
mtype told;            /* what the launcher went away with */

mtype = { Asked, Granted, GrantedCut, Denied, Received, Cut };
mtype claim[OFFERS+1]; /* the connection of driver n */
bool ack[OFFERS+1];    /* its acknowledgement waits to be read */

/* ---- what the dispatcher knows, and loses with its life ----------------- */

bool fresh;            /* an open attempt was not judged in this life */
bool waits;            /* for the end of an orphan */
bool trusts;           /* ONE_LOOK: has seen the lock held and asks no more */

/* ---- ghosts: they decide nothing ---------------------------------------- */

bool accepted;         /* the enqueue was committed */
bool gap;              /* a dispatcher was killed and the lane is not retaken */
bool person;           /* has decided whether to ask for a retry */

/* From here on the lane may be anybody's: the agent has ended, or the driver has
   before it started one. */
#define OVER (row == Ended || (starts > 0 && whose[starts] == attempt && begun[starts] == Begun && \
	(agent[starts] == Dead || (agent[starts] == Unstarted && at[V(starts)] == Gone))))

/* Every promise that is checked has its sentence, which the replay of a
   counterexample ends with and tools/model.sh goes by. */
#define MUST(promise, sentence) \
	if \
	:: promise \
	:: else -> printf(sentence); assert(promise) \
	fi

/* ---- dying -------------------------------------------------------------- */

inline cut(n) { /* what was sent to the driver stays to be received */
	ack[n] = 0;
	if
	:: claim[n] == Asked || claim[n] == Received -> claim[n] = Cut
	:: claim[n] == Granted -> claim[n] = GrantedCut
	:: else
	fi
}

inline dieD() {
	at[D] = Gone; fd[D] = 0; got = 0; slot = 0;
	up = 0; linked = 0; mail[1] = 0; mail[2] = 0; asking = 0;
	fresh = 0; waits = 0; trusts = 0;
	cut(1);
#if OFFERS > 1
	cut(2);
#endif
#if OFFERS > 2
	cut(3);
#endif
	if
	:: accepted && row != Ended -> gap = 1
	:: else
	fi;
	settle()
}

inline dieV(n) {
	at[V(n)] = Gone; fd[V(n)] = 0; forked[n] = 0; flying[n] = 0;
	if
	:: claim[n] != 0 -> claim[n] = Cut
	:: else
	fi;
	settle()
}

/* ---- the launcher (L5, L9) ---------------------------------------------- */

proctype launcher() {
end:	do
	:: d_step { at[L] == LTake && lane == 0 ->
		printf("launcher: takes the lane\n");
		lane = OL; fd[L] = OL; at[L] = LRead }
	:: d_step { at[L] == LTake && lane != 0 ->
		printf("launcher: the lane is taken, gives up\n");
		at[L] = Gone }
	:: d_step { at[L] == LRead && ORPHANED ->
		printf("launcher: the lane is an orphan's, gives up\n");
		fd[L] = 0; at[L] = Gone; settle() }
	:: d_step { at[L] == LRead && !ORPHANED ->
		printf("launcher: writes the lane record and the entry\n");
		record(Waiting, 0); at[L] = LSend }
	:: d_step { at[L] == LSend && up ->
		printf("launcher: sends the row and the descriptor\n");
		mail[1] = 1; conn = 1; linked = 1; at[L] = LWait }
	:: d_step { at[L] == LSend && !up ->
		printf("launcher: nobody listens; nothing was sent\n");
		told = Never; at[L] = LClose }
	:: d_step { at[L] == LWait && answer != 0 ->
		printf("launcher: reads the answer: %e\n", answer);
		if
#if !defined(BELIEVE_NO) && !defined(ASK_IS_NO)
		:: answer == Refused && conn == 2 && !over -> told = Unknown /* the first may lie unread */
#endif
		:: else -> told = answer
		fi;
		answer = 0; conn = 0; linked = 0; over = 0; at[L] = LClose }
	:: d_step { at[L] == LWait && answer == 0 && conn == 1 && !linked ->
		printf("launcher: connection 1 is closed from the other side\n");
		conn = 0; over = 1; at[L] = LAgain }
	:: d_step { at[L] == LWait && answer == 0 && conn == 1 && linked ->
		printf("launcher: no answer came in time, hangs up\n");
		conn = 0; linked = 0; at[L] = LAgain }
	:: d_step { at[L] == LWait && answer == 0 && conn == 2 ->
		printf("launcher: no answer on the second connection, exits 69\n");
		conn = 0; linked = 0; over = 0; told = Unknown; at[L] = LClose }
	:: d_step { at[L] == LAgain && up ->
		printf("launcher: asks, by sending the same attempt again\n");
		mail[2] = 1; conn = 2; linked = 1; at[L] = LWait }
	:: d_step { at[L] == LAgain ->
		printf("launcher: gives up asking, exits 69\n");
		over = 0; told = Unknown; at[L] = LClose }
	:: d_step { at[L] == LClose ->
		printf("launcher: closes its copy and exits\n");
		if /* whoever was refused leaves nothing (L5) */
		:: told == Refused || told == Never -> record(Nobody, 0)
		:: else
		fi;
#ifdef UNLOCK
		if
		:: lane == OL -> lane = 0 /* for every copy */
		:: else
		fi;
#endif
		fd[L] = 0; at[L] = Gone; settle() }
	od
}

/* ---- the dispatcher ----------------------------------------------------- */

inline reply(what) {
	if
	:: conn == asking -> answer = what
	:: else
	fi;
	asking = 0
}

inline arbitrate() { /* whoever creates begun.N first decides (L14, L15) */
	printf("dispatcher: creates begun.%d: withdrawn\n", starts);
	begun[starts] = Withdrawn
}

inline endDriver() {
	if
	:: at[V(starts)] != Gone -> dieV(starts)
	:: else
	fi
}

inline ends(how) { row = Ended; why = how; token = 0 }

proctype dispatcher() {
end:	do
	/* -- a new life: the rows before the socket (L19, L20) -- */
	:: d_step { at[D] == Gone ->
		printf("dispatcher: starts again\n");
		at[D] = DStart; fresh = 1 }
	:: d_step { at[D] == DStart && row != Queued && row != Starting ->
		printf("dispatcher: has no row to recover; listens\n");
		up = 1; at[D] = DLoop }
	:: d_step { at[D] == DStart && (row == Queued || row == Starting) ->
#ifdef TRUST_ROW
		printf("dispatcher: takes the row's word for its lane\n");
		fd[D] = UNLOCKED; at[D] = DKeep }
#else
		printf("dispatcher: has a row to recover\n");
		at[D] = DTake }
#endif
	:: d_step { at[D] == DTake && lane == 0 ->
		printf("dispatcher: takes the lane of its row\n");
		lane = OD; fd[D] = OD; at[D] = DTook }
#ifdef PATIENT
	:: d_step { at[D] == DTake && lane != 0 && rec != Other ->
		printf("dispatcher: the lane is held in the row's own name; keeps the row, without it\n");
		at[D] = DKeep }
	:: d_step { at[D] == DTake && lane != 0 && STAYS(lane) && rec == Other ->
#elif defined(ONE_LOOK)
	:: d_step { at[D] == DTake && lane != 0 ->
#else
	:: d_step { at[D] == DTake && lane != 0 && STAYS(lane) ->
#endif
		printf("dispatcher: the lane is held\n");
		MUST(STAYS(lane), "broken: a row is displaced by somebody who stays\n");
		at[D] = DDisplace }
	:: d_step { at[D] == DTook && ORPHANED ->
		printf("dispatcher: the lane is an orphan's, lets go\n");
		fd[D] = 0; settle(); at[D] = DDisplace }
	:: d_step { at[D] == DTook && !ORPHANED ->
		printf("dispatcher: the lane is nobody's\n");
		at[D] = DKeep }
	:: d_step { at[D] == DKeep ->
		printf("dispatcher: commits queued, token gone; listens\n");
#ifdef RESTAMP
		place = 2;
#endif
		row = Queued; token = 0; gap = gap && fd[D] == 0; up = 1; at[D] = DLoop }
#ifdef PATIENT
#define BARE (at[D] == DLoop && row == Queued && fd[D] == 0)
	:: d_step { BARE && lane == 0 ->
		printf("dispatcher: takes the lane of its row after all\n");
		lane = OD; fd[D] = OD; at[D] = DTook }
	:: d_step { BARE && lane != 0 && STAYS(lane) && rec == Other ->
		printf("dispatcher: the lane of its row is held by another now\n");
		at[D] = DDisplace }
#else
#define BARE false
#endif
	:: d_step { at[D] == DDisplace ->
		printf("dispatcher: commits not_started, displaced; listens\n");
#ifdef DROP_ROW
		row = Absent; token = 0;
#else
		ends(Displaced);
#endif
		up = 1; at[D] = DLoop }

	/* -- enqueue (L6, L7, L8) -- */
	:: d_step { at[D] == DLoop && mail[1] ->
		printf("dispatcher: receives what came on connection 1\n");
		mail[1] = 0; got = OL; asking = 1; at[D] = DDecide }
	:: d_step { at[D] == DLoop && mail[2] ->
		printf("dispatcher: receives what came on connection 2\n");
		mail[2] = 0; got = OL; asking = 2; at[D] = DDecide }
	:: d_step { at[D] == DDecide && accepted ->
		printf("dispatcher: knows this attempt; says what became of it\n");
#ifdef PATIENT
		if
		:: row == Queued && fd[D] == 0 && lane == got -> fd[D] = got; gap = 0
		:: else
		fi;
#endif
		got = 0; settle(); reply(Accepted); at[D] = DLoop }
#ifdef ASK_IS_NO
	:: d_step { at[D] == DDecide && !accepted && asking == 2 ->
		printf("dispatcher: does not know this attempt\n");
		got = 0; settle(); reply(Refused); at[D] = DLoop }
	:: d_step { at[D] == DDecide && !accepted && asking == 1 && lane == got ->
#else
	:: d_step { at[D] == DDecide && !accepted && lane == got ->
#endif
#ifdef ANSWER_FIRST
		printf("dispatcher: answers\n");
		reply(Accepted); at[D] = DAnswer }
	:: d_step { at[D] == DAnswer ->
		printf("dispatcher: commits the row and keeps the descriptor\n");
		row = Queued; place = 1; fd[D] = got; got = 0; accepted = 1; at[D] = DLoop }
#else
		printf("dispatcher: commits the row and keeps the descriptor\n");
		row = Queued; place = 1; fd[D] = got; got = 0; accepted = 1; at[D] = DOwn }
	:: d_step { at[D] == DOwn ->
		printf("dispatcher: writes the lane record and the entry\n");
		record(Waiting, 0); at[D] = DAnswer }
	:: d_step { at[D] == DAnswer ->
		printf("dispatcher: answers\n");
		reply(Accepted); at[D] = DLoop }
#endif
	:: d_step { at[D] == DDecide && !accepted ->
		printf("dispatcher: refuses and closes\n");
#ifdef LEAK
		fd[D] = got;
#endif
		got = 0; settle(); reply(Refused); at[D] = DLoop }

	/* -- offer (L13a) -- */
#define OFFER(s, best) \
	:: d_step { at[D] == DLoop && row == Queued && starts < OFFERS && SLOTFREE(s) && best && !BARE -> \
		printf("dispatcher: takes slot %d for its row\n", s); \
		MUST(fd[D] != 0 && fd[D] == lane, "broken: a waiting row has its lane\n"); \
		slot = s; at[D] = DOffer }
	OFFER(1, true)
	OFFER(2, !SLOTFREE(1))
	:: d_step { at[D] == DOffer ->
		starts++; whose[starts] = attempt; seat[starts] = slot;
		token = starts; row = Starting; at[D] = DFork;
		printf("dispatcher: commits starting, offer %d\n", starts) }
	:: d_step { at[D] == DFork ->
		printf("dispatcher: forks driver %d\n", starts);
		forked[starts] = fd[D]; at[V(starts)] = VExec; at[D] = DLoop }

	/* -- the deadline, or the driver ended unclaimed (L15a) -- */
#ifdef NO_DEADLINE
	:: d_step { at[D] == DLoop && row == Starting && false ->
#else
	:: d_step { at[D] == DLoop && row == Starting ->
#endif
		printf("dispatcher: commits queued, offer %d withdrawn unclaimed\n", starts);
		row = Queued; token = 0; at[D] = DUnoffer }
	:: d_step { at[D] == DUnoffer ->
		printf("dispatcher: ends driver %d and gives the slot back\n", starts);
		slot = 0; endDriver(); at[D] = DLoop }

	/* -- claim (L14) -- */
#ifdef NO_TOKEN
#define MATCH(n) (row == Starting)
#else
#define MATCH(n) (row == Starting && token == n)
#endif
#define CLAIM(n) \
	:: d_step { at[D] == DLoop && claim[n] == Asked && MATCH(n) -> \
		printf("dispatcher: grants driver %d's claim: commits the attempt open\n", n); \
		MUST(token == n, "broken: no old token is accepted\n"); \
		row = Open; token = 0; at[D] = DSend } \
	:: d_step { at[D] == DLoop && claim[n] == Asked && !MATCH(n) -> \
		printf("dispatcher: refuses driver %d's claim\n", n); \
		claim[n] = Denied }
	CLAIM(1)
#if OFFERS > 1
	CLAIM(2)
#endif
#if OFFERS > 2
	CLAIM(3)
#endif
	:: d_step { at[D] == DSend ->
		printf("dispatcher: sends the descriptors\n");
		if
		:: claim[starts] == Asked -> flying[starts] = fd[D]; claim[starts] = Granted
		:: else
		fi;
#ifdef EARLY_CLOSE
		fd[D] = 0; slot = 0; settle();
#endif
		at[D] = DLoop }
	:: d_step { at[D] == DLoop && row == Open && fd[D] != 0 && ack[starts] ->
		printf("dispatcher: reads the acknowledgement\n");
		ack[starts] = 0; at[D] = DHand }
	:: d_step { at[D] == DHand ->
		printf("dispatcher: closes its copies\n");
		fd[D] = 0; slot = 0; settle(); at[D] = DRun }
	:: d_step { at[D] == DRun ->
		printf("dispatcher: commits running\n");
		row = Running; at[D] = DLoop }

	/* -- no acknowledgement in time, or the driver is gone; or a new life finds
	      an attempt granted and not begun (L15, L18) -- */
#define UNSURE (at[D] == DLoop && row == Open && (fd[D] != 0 || fresh))
	:: d_step { UNSURE && begun[starts] == Begun && fd[D] != 0 ->
		printf("dispatcher: begun.%d says begun\n", starts);
		ack[starts] = 0; at[D] = DHand }
	:: d_step { UNSURE && begun[starts] == Begun && fd[D] == 0 ->
		printf("dispatcher: begun.%d says begun, in an earlier life\n", starts);
		at[D] = DRun }
	:: d_step { UNSURE && begun[starts] == 0 ->
#ifdef NO_ARBITER
		printf("dispatcher: sees no begun.%d\n", starts);
#else
		arbitrate();
#endif
		at[D] = DEnd }
	:: d_step { UNSURE && begun[starts] == Withdrawn ->
		printf("dispatcher: begun.%d says withdrawn, in an earlier life\n", starts);
		at[D] = DEnd }
	:: d_step { at[D] == DEnd ->
		printf("dispatcher: ends driver %d and waits for its end\n", starts);
		endDriver();
		if
		:: fd[D] != 0 -> at[D] = DRetook
		:: else -> at[D] = DRetake
		fi }
	:: d_step { at[D] == DRetake && lane == 0 && !ORPHANED ->
		printf("dispatcher: takes the lane again\n");
		lane = OD; fd[D] = OD; at[D] = DRetook }
	:: d_step { at[D] == DRetake && lane == 0 && ORPHANED ->
		printf("dispatcher: finds an orphan in the lane\n");
		at[D] = DGone }
#ifdef PATIENT
	:: d_step { at[D] == DRetake && lane != 0 && rec != Other ->
		printf("dispatcher: the lane is held in the row's own name; queues the row, without it\n");
		at[D] = DRequeue }
	:: d_step { at[D] == DRetake && lane != 0 && STAYS(lane) && rec == Other ->
#else
	:: d_step { at[D] == DRetake && lane != 0 && STAYS(lane) ->
#endif
		printf("dispatcher: the lane is held and not to be taken again\n");
		at[D] = DGone }
	:: d_step { at[D] == DRetook ->
		printf("dispatcher: writes the lane record\n");
		record(Waiting, 0); slot = 0; at[D] = DRequeue }
	:: d_step { at[D] == DRequeue ->
		printf("dispatcher: commits queued again, in its old place\n");
		MUST(begun[starts] != Begun, "broken: what has begun is never queued again\n");
		row = Queued; token = 0; gap = gap && fd[D] == 0; fresh = 0; at[D] = DLoop }
	:: d_step { at[D] == DGone ->
		printf("dispatcher: commits not_started, displaced\n");
		ends(Displaced); at[D] = DLoop }

	/* -- an attempt that has begun: its driver gone, or a new life (L18) -- */
#define JUDGE (at[D] == DLoop && row == Running && !trusts && \
	(fresh || at[V(starts)] == Gone) && !(waits && OURS))
	:: d_step { at[D] == DLoop && row == Running && runjson ->
		printf("dispatcher: run.json, or the driver, says how it ended; commits it\n");
		ends(Done) }
	:: d_step { JUDGE && !runjson ->
		printf("dispatcher: finds no outcome; looks at the lane\n");
		at[D] = DLook }
#ifdef FREE_ONLY
#define LINGERS (lane == 0 && rec == Driven && FOUND)
#else
#define LINGERS (rec == Driven && FOUND) /* a copy left with the launcher changes nothing */
#endif
	:: d_step { at[D] == DLook && LINGERS && at[V(starts)] == Gone ->
		printf("dispatcher: orphaned; watches the agent\n");
		fresh = 0; waits = 1; at[D] = DLoop }
	:: d_step { at[D] == DLook && lane == 0 && !LINGERS ->
		printf("dispatcher: nobody is in the lane\n");
		at[D] = DAgain }
#ifdef ONE_LOOK
	:: d_step { at[D] == DLook && lane != 0 && rec == Driven ->
		printf("dispatcher: the lane is held: running\n");
		trusts = 1; at[D] = DLoop }
#endif
	:: d_step { at[D] == DLook && lane != 0 && rec == Driven && at[V(starts)] != Gone ->
		printf("dispatcher: the driver has the lane; watches it\n");
		fresh = 0; at[D] = DLoop }
	:: d_step { at[D] == DLook && lane != 0 && STAYS(lane) && !LINGERS && /* so after 25 looks */
	   !(rec == Driven && (at[V(starts)] != Gone || agent[starts] == Forked)) ->
		printf("dispatcher: nobody of ours is in the lane\n");
		at[D] = DAgain }
#ifndef STALE_OUTCOME
	:: d_step { at[D] == DAgain && runjson -> /* it may have ended between the two looks */
		printf("dispatcher: but run.json has an outcome; commits it\n");
		ends(Done); fresh = 0; at[D] = DLoop }
	:: d_step { at[D] == DAgain && !runjson ->
#else
	:: d_step { at[D] == DAgain ->
#endif
		printf("dispatcher: commits lost\n");
		MUST(begun[starts] == Begun, "broken: lost only after begun\n");
		MUST(!OURS, "broken: what lives is not lost\n");
		MUST(!runjson, "broken: what has an outcome is not lost\n");
		ends(Lost); fresh = 0; at[D] = DLoop }

	/* -- an explicit retry: the dispatcher takes the lane itself -- */
#define RETRYABLE (at[D] == DLoop && row == Ended && (why == Lost || why == Displaced) && !person)
	:: d_step { RETRYABLE && lane == 0 ->
		printf("dispatcher: is asked for a retry; takes the lane\n");
		person = 1; lane = OD; fd[D] = OD; at[D] = DRetry }
	:: d_step { RETRYABLE ->
		printf("nobody asks for a retry, or the lane is held, which refuses it\n");
		person = 1 }
	:: d_step { at[D] == DRetry && ORPHANED ->
		printf("dispatcher: the lane is an orphan's, refuses the retry\n");
		fd[D] = 0; settle(); at[D] = DLoop }
	:: d_step { at[D] == DRetry && !ORPHANED ->
		printf("dispatcher: commits the retry, with the old place\n");
		attempt = 2; row = Queued; why = 0; runjson = 0; gap = 0; at[D] = DOwn }
	od
}

/* ---- a driver, and its agent (L14, L17) --------------------------------- */

#define TWIN(m, n) (m != n && whose[m] == whose[n] && agent[m] != Unstarted)

inline leaves(n) { /* a driver that closes what it has */
	fd[V(n)] = 0; claim[n] = Cut; at[V(n)] = Gone; settle()
}

proctype driver(byte n) {
end:	do
	:: d_step { at[V(n)] == VExec ->
		printf("driver %d: execs; the dispatcher's descriptors close\n", n);
		forked[n] = 0; at[V(n)] = VClaim; settle() }
	:: d_step { at[V(n)] == VClaim && up ->
		printf("driver %d: claims\n", n);
		claim[n] = Asked; at[V(n)] = VWait }
	:: d_step { at[V(n)] == VClaim && !up ->
		printf("driver %d: nobody listens, exits\n", n);
		at[V(n)] = Gone }
	:: d_step { at[V(n)] == VWait && (claim[n] == Granted || claim[n] == GrantedCut) ->
		printf("driver %d: receives the descriptors\n", n);
		fd[V(n)] = flying[n]; flying[n] = 0;
		if
		:: claim[n] == Granted -> claim[n] = Received
		:: else -> claim[n] = Cut
		fi;
		at[V(n)] = VProve }
	:: d_step { at[V(n)] == VWait && (claim[n] == Denied || claim[n] == Cut) ->
		printf("driver %d: is refused or cut off, exits\n", n);
		leaves(n) }
	:: d_step { at[V(n)] == VProve && lane == fd[V(n)] && begun[n] == 0 ->
		printf("driver %d: proves the lane; writes the lane and slot records\n", n);
		record(Driven, n);
#ifdef SPAWN_FIRST
		at[V(n)] = VSpawn }
#else
		at[V(n)] = VBegin }
#endif
	:: d_step { at[V(n)] == VProve && !(lane == fd[V(n)] && begun[n] == 0) ->
		printf("driver %d: cannot prove the lane or is withdrawn; closes, exits\n", n);
		leaves(n) }
#ifdef NO_ARBITER
	:: d_step { at[V(n)] == VBegin ->
#else
	:: d_step { at[V(n)] == VBegin && begun[n] != 0 ->
		printf("driver %d: finds itself withdrawn; closes, exits\n", n);
		leaves(n) }
	:: d_step { at[V(n)] == VBegin && begun[n] == 0 ->
#endif
		printf("driver %d: creates begun.%d: begun\n", n, n);
		begun[n] = Begun; at[V(n)] = VAck }
	:: d_step { at[V(n)] == VAck ->
		printf("driver %d: acknowledges, if it can\n", n);
		if
		:: claim[n] == Received -> ack[n] = 1
		:: else
		fi;
		claim[n] = Cut;
#ifdef SPAWN_FIRST
		at[V(n)] = VRun }
#else
		at[V(n)] = VSpawn }
#endif
	:: d_step { at[V(n)] == VSpawn ->
		printf("driver %d: forks its agent\n", n);
		MUST(!AGENTS, "broken: never two agents in one lane\n");
		MUST(theirslot != seat[n], "broken: never two agents in one slot\n");
		MUST(!EACHX(TWIN, n), "broken: no attempt is started twice\n");
		agent[n] = Forked; child[n] = fd[V(n)]; at[V(n)] = VNote }
	:: d_step { at[V(n)] == VNote ->
		printf("driver %d: writes the child into lane and slot\n", n);
		named = 1;
#ifdef SPAWN_FIRST
		at[V(n)] = VBegin }
#else
		at[V(n)] = VRun }
#endif
#ifdef CLOSE_FIRST
	:: d_step { at[V(n)] == VRun && agent[n] == Dead ->
		printf("driver %d: clears the lane record\n", n);
		rec = Nobody; at[V(n)] = VClose }
	:: d_step { at[V(n)] == VClose ->
		printf("driver %d: closes slot and lane\n", n);
		fd[V(n)] = 0; settle(); at[V(n)] = VTell }
	:: d_step { at[V(n)] == VTell ->
		printf("driver %d: writes the outcome to run.json; exits\n", n);
		MUST(row != Ended, "broken: what has an outcome is not lost\n");
		runjson = 1; at[V(n)] = Gone }
#else
	:: d_step { at[V(n)] == VRun && agent[n] == Dead ->
		printf("driver %d: writes the outcome to run.json; tells the dispatcher, if it can\n", n);
		MUST(row != Ended, "broken: what has an outcome is not lost\n");
		runjson = 1; at[V(n)] = VClear }
	:: d_step { at[V(n)] == VClear ->
		printf("driver %d: clears the lane record\n", n);
		record(Nobody, 0); at[V(n)] = VClose }
	:: d_step { at[V(n)] == VClose ->
		printf("driver %d: closes slot and lane; exits\n", n);
		leaves(n) }
#endif
	/* the agent, which needs no driver to live on (S23) */
	:: d_step { agent[n] == Forked ->
		printf("agent %d: execs; the driver's descriptors close\n", n);
		agent[n] = Alive; child[n] = 0; settle() }
	:: d_step { agent[n] == Alive ->
		printf("agent %d: ends\n", n);
		agent[n] = Dead }
	od
}

/* ---- the outsider and its agent (L2), the neighbour --------------------- */

proctype outsider() {
end:	do
	:: d_step { at[O] == OTake && lane == 0 ->
		printf("outsider: takes the lock\n");
		lane = OO; fd[O] = OO; at[O] = ORead }
	:: d_step { at[O] == OTake || at[O] == OWait ->
		printf("outsider: gives up\n");
		at[O] = Gone }
	:: d_step { at[O] == ORead && ORPHANED ->
		printf("outsider: the lane is an orphan's, lets go\n");
		fd[O] = 0; settle(); at[O] = OWait }
	:: d_step { at[O] == OWait && !OURS ->
		printf("outsider: the orphan has ended\n");
		at[O] = OTake }
	:: d_step { at[O] == ORead && !ORPHANED ->
		printf("outsider: owns the lane\n");
		MUST(!accepted || OVER || gap, "broken: the lane is ours from acceptance to the agent's end\n");
		at[O] = OWrite }
	:: d_step { at[O] == OWrite ->
		printf("outsider: writes the lane record\n");
		record(Other, 0); at[O] = OSpawn }
	:: d_step { at[O] == OSpawn ->
		printf("outsider: starts its agent\n");
		MUST(!AGENTS, "broken: never two agents in one lane\n");
		theirs = Alive; at[O] = ORun }
	:: d_step { at[O] == ORun && theirs == Dead ->
		printf("outsider: clears the lane record\n");
		record(Nobody, 0); at[O] = OClose }
	:: d_step { at[O] == OClose ->
		printf("outsider: closes the lane, exits\n");
		fd[O] = 0; at[O] = Gone; settle() }
	:: d_step { theirs == Alive ->
		printf("the outsider's agent: ends\n");
		theirs = Dead }
	od
}

#ifdef NEIGHBOUR
#define USES(n, s) (STIRS(n) && seat[n] == s)
#define TAKES(s) \
	:: d_step { SLOTFREE(s) -> \
		printf("neighbour: takes slot %d\n", s); \
		MUST(!EACHX(USES, s), "broken: never two agents in one slot\n"); \
		theirslot = s }

proctype neighbour() {
	if
	TAKES(1)
	TAKES(2)
	:: true -> goto end
	fi;
	d_step { printf("neighbour: gives its slot back\n"); theirslot = 0 }
end:	false
}
#endif

/* ---- SIGKILL ------------------------------------------------------------ */

#define KILL(n) \
	:: d_step { kills < KILLS && at[V(n)] != Gone && at[V(n)] != Unborn -> \
		printf("SIGKILL to driver %d\n", n); \
		kills++; dieV(n) }

proctype killer() {
end:	do
	:: d_step { kills < KILLS && at[L] != Gone ->
		printf("SIGKILL to the launcher\n");
		kills++; at[L] = Gone; fd[L] = 0; conn = 0; answer = 0; linked = 0; over = 0; settle() }
	:: d_step { kills < KILLS && at[D] != Gone ->
		printf("SIGKILL to the dispatcher\n");
		kills++; dieD() }
	:: d_step { kills < KILLS && at[O] != Gone ->
		printf("SIGKILL to the outsider\n");
		kills++; at[O] = Gone; fd[O] = 0; settle() }
	KILL(1)
#if OFFERS > 1
	KILL(2)
#endif
#if OFFERS > 2
	KILL(3)
#endif
	:: d_step { kills < KILLS ->
		printf("SIGKILL to nobody else\n");
		kills = KILLS }
	od
}

/* ---- at rest: nobody has anything left to do ---------------------------- */

#define BUSY(n) (at[V(n)] != Gone && at[V(n)] != Unborn)

proctype rest() {
	timeout;
	d_step {
		printf("at rest\n");
		MUST(at[L] == Gone && at[D] == DLoop && at[O] == Gone && !EACH(BUSY) && !AGENTS,
			"broken: nobody is stuck\n");
		MUST(!accepted || row == Queued || (row == Ended && why != 0),
			"broken: every row is accounted for\n");
		MUST(told != Accepted || accepted,
			"broken: what was answered was committed\n");
		MUST((told != Refused && told != Never) || !accepted,
			"broken: what was refused is not queued\n");
		MUST(runjson == (row == Ended && why == Done),
			"broken: what has an outcome is not lost\n");
		MUST(!accepted || place == 1,
			"broken: start and priority never move\n");
		MUST(row != Queued || fd[D] == lane,
			"broken: a waiting row has its lane\n");
		MUST(row == Queued || (lane == 0 && fd[D] == 0),
			"broken: no descriptor is left behind\n");
		MUST(slot == 0 && theirslot == 0 && !EACH(CARRIESANY),
			"broken: no slot is left behind\n")
	}
}

#define BORN(n) at[V(n)] = Unborn; agent[n] = Unstarted
#ifdef NEIGHBOUR
#define NEIGHBOURS run neighbour();
#else
#define NEIGHBOURS
#endif

init {
	d_step {
		at[L] = LTake; at[D] = DLoop; up = 1; at[O] = OTake;
		row = Absent; rec = Nobody; theirs = Unstarted; attempt = 1;
		BORN(1);
#if OFFERS > 1
		BORN(2);
#endif
#if OFFERS > 2
		BORN(3);
#endif
	}
	atomic {
		run launcher(); run dispatcher(); run driver(1);
#if OFFERS > 1
		run driver(2);
#endif
#if OFFERS > 2
		run driver(3);
#endif
		run outsider(); NEIGHBOURS run killer(); run rest()
	}
}
