#!/bin/sh
# run.sh [MODEL...] checks the models of what was built, or only those that are named; it needs spin
# and gcc. Each line: what should hold, or which variant should be found broken.
set -eu
only=" $* "
cd "$(dirname "$0")"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
check() { # WANT MODEL FLAGS...
	want=$1 model=$2
	shift 2
	case "$only" in "  " | *" $model "*) ;; *) return 0 ;; esac
	begun=$(date +%s)
	(cd "$dir" && spin -a "$@" "$OLDPWD/$model.pml" >/dev/null && gcc -O2 -w -DSAFETY -DCOLLAPSE -DVECTORSZ=2048 -o pan pan.c && ./pan -m1000000 >out)
	got=$(sed -n 's/.*errors: \([0-9]*\).*/\1/p' "$dir/out")
	states=$(sed -n 's/ *\([0-9]*\) states, stored.*/\1/p' "$dir/out")
	case "$want:$got" in ok:0 | broken:[1-9]*) echo "as it should be ($want, $states states, $(($(date +%s) - begun)) s): $model $*" ;; *) echo "$model $*: $got errors, want $want"; exit 1 ;; esac
}
check ok handoff -DNOREPL -DSTREAM_ONLY
check ok handoff -DNOREPL -DONE_EACH -DARM_ALWAYS
check ok handoff -DNOREPL -DSTREAM_ONLY -DNO_WATCHDOG
check ok handoff -DNOREPL -DONE_EACH -DNO_WATCHDOG
for flag in RELEASE_BLIND ARM_EARLY; do check broken handoff -DNOREPL -DSTREAM_ONLY -DNO_WATCHDOG -D$flag; done
for flag in NO_MISSED COUNT_AS_ARMED; do check broken handoff -DNOREPL -DSTREAM_ONLY -D$flag; done

check ok left
check ok left -DW=1 -DT=3
for flag in FLUSH_UNARMED END_EARLY KEEP_FLAG QUANTUM_PASSING LIST_EARLY WATCHDOG_LOOKS SCHEDULE_MARKED; do check broken left -D$flag; done

check ok redir
check ok redir -DP=2
check ok redir -DTWO -DM=1
check ok redir -DLOSS
check ok redir -DLOSS -DP=2
check ok redir -DLOSS -DANEW -DM=1 -DPOSTS=1
check ok redir -DREOPEN -DM=1 -DPOSTS=1
check ok redir -DLOOK -DPOSTS=1 -DM=3
check ok redir -DSTREAM
check ok redir -DSTREAM -DLOSS -DPOSTS=1
check ok redir -DSTREAM -DLOSS -DANEW -DM=1 -DPOSTS=1 -DN=2
for flag in NO_RECHECK PLAIN_CLAIM PLAIN_END NO_UNCLAIM NO_FIN USE_TWICE TORN UNSTOP; do check broken redir -D$flag; done
check broken redir -DTWO -DM=1 -DNO_SEM
for flag in NO_ORDER ACK_EARLY LEAVE_POST PLACE_ENDING SWITCH_TWICE END_NO_LOCK KEEP_COUNT; do check broken redir -DSTREAM -D$flag; done
for flag in COUNT_LATE SEE_ENDING; do check broken redir -DLOSS -D$flag; done
for flag in REPUBLISH LEAVE_POSTED END_BLIND; do check broken redir -DLOSS -DANEW -DM=1 -DPOSTS=1 -D$flag; done
for flag in EARLY FRESH; do check broken redir -DREOPEN -DM=1 -DPOSTS=1 -DREOPEN_$flag; done
for flag in ONE_SLOT COUNT_FIRST; do check broken redir -DLOOK -DPOSTS=1 -DM=3 -D$flag; done

check ok order -DNM=4
check ok order -DOTHER -DNM=2
check ok order -DCREDITS
check ok order -DCREDITS -DOTHER -DNM=2
for flag in NO_CATCH NO_BUSY NO_BUSY_STREAM NO_WAIT OVER_EARLY NUMBER_LATE SYNC_JUMPS NO_SERIAL; do check broken order -D$flag; done
check broken order -DOTHER -DNM=2 -DNO_MID
check broken order -DCREDITS -DCREDIT_LATE

check ok update
check ok update -DROUNDS=2
for flag in DIFF_FIRST COOL_FIRST FLAG_LATE FLAG_THIN NO_HOT CUT_FLAG ASK_EARLY; do check broken update -D$flag; done

check ok sleep -DR=1
check ok sleep -DSLOTS=2 -DR=1
for flag in ENTRY_LATE COUNT_LATE LOAD_EARLY SHARED; do check broken sleep -D$flag; done

check ok gate
check ok gate -DLEVEL
check ok gate -DLEAVE
check ok gate -DLEAVE -DLEVEL -DR=1
for flag in LEVELS_FIRST RUNNING_FIRST PENDING_LATE PENDING_FIRST CLEAR_OUTSIDE WAKE_ONE PLAIN_LEAVE; do check broken gate -D$flag; done
check broken gate -DLEAVE -DKEEP_LEVEL

check ok notes
check ok notes -DNI=1 -DM=3 -DOTHER
check ok notes -DOTHER -DM=1
for flag in LEAVE_LATE HEAD_LATE LOAD_EARLY NO_COMPARE POLL_EARLY; do check broken notes -D$flag; done
check broken notes -DOTHER -DM=1 -DNO_POSTED
check ok notes -DCOLLECT -DM=1
check ok notes -DCOLLECT -DNI=1 -DM=3
check ok notes -DCOLLECT -DOTHER -DM=1
check broken notes -DCOLLECT -DM=1 -DCOLLECT_MUTE

check ok resume
check ok resume -DCUTS=1 -DBAD=1
check ok resume -DCUTS=1 -DSPUR=0 -DBAD=2
check broken resume -DBAD=1 -DNO_NUMBER
for flag in NO_CLOSE READ_ON SAME_ATTEMPT TAKE_SAME GET_MIDDLE ASK_MORE OVERTAKE; do check broken resume -D$flag -DNO_NUMBER; done

check ok cancel
for flag in ABORT_ONCE ABORT_LATE CREDIT_DELTA KEEP_CREDIT; do check broken cancel -D$flag; done

check ok rejoin
check ok rejoin -DRST=3
for flag in NO_EXPECT EARLY GRACE NO_PROOF NO_RECHECK BY_ID; do check broken rejoin -D$flag; done

# LEAVE and HANGUP are of what was built and is found wanting: the headers say what.
check ok silence
check ok silence -DCUTS=2 -DSTOPS=2
check ok silence -DGET
check ok silence -DH=2
for flag in NO_DETECTOR DETECTOR_SELF NO_UNSENT NO_KERNEL NO_MARGIN HELLO_ONLY SAY_LATE; do check broken silence -D$flag; done
check broken silence -DGET -DNO_PROBE

check ok departed
check ok departed -DRST=3
for flag in ALL_ENDED NO_WATCH EOF_BACK NO_LATER EARLY END_FIRST LEAVE HANGUP; do check broken departed -D$flag; done

check ok gone
check ok gone -DN=2 -DLINKS=3
for flag in FIRST EACH NO_FENCE ANSWER_LAST NO_DRAIN; do check broken gone -D$flag; done

check ok queue
check ok queue -DN=5 -DD=2
check ok queue -DN=5 -DKILLP
check ok queue -DN=5 -DKILLC
check ok queue -DCLOSE
check ok queue -DLATE -DN=4 -DD=0
check ok queue -DLATE -DN=4 -DD=0 -DKILLC
check ok queue -DLATE -DN=4 -DD=0 -DCLOSE
check ok queue -DLATE -DN=3 -DD=0 -DEND
check ok queue -DEND -DN=4
check ok queue -DEND -DN=3 -DD=2
check ok queue -DEND -DN=3 -DKILLP
for flag in LOOK_AHEAD UPWARDS NO_LAP QUARTER_ONLY COUNT_BEFORE_COPY NO_RESEND NO_RELOAD NO_FROM; do check broken queue -D$flag; done
check ok queue -DCOALESCE -DN=5 -DD=0
check ok queue -DCOALESCE -DN=3
check ok queue -DCOALESCE -DN=3 -DD=0 -DKILLP
check ok queue -DCOALESCE -DN=3 -DD=0 -DKILLC
check ok queue -DCOALESCE -DN=3 -DD=0 -DEND
for flag in REUSE_EARLY NO_FLUSH; do check broken queue -DCOALESCE -DN=3 -DD=0 -D$flag; done
check broken queue -DCOALESCE -DN=3 -DD=0 -DEND -DMARK_OVERTAKES
check broken queue -DKILLP -DNO_SECOND_LOOK
check broken queue -DCLOSE -DNO_FENCE
check broken queue -DLATE -DN=5 -DD=0 -DTIMER_AFTER
check broken queue -DLATE -DN=4 -DD=0 -DTIMER_NO_RELOAD
check broken queue -DLATE -DN=4 -DD=0 -DCLOSE -DTIMER_BLIND
for flag in MARK_EARLY MARK_BLIND MARK_NO_FENCE; do check broken queue -DEND -DN=4 -D$flag; done
for flag in MARK_FIRST NO_MARK; do check broken queue -DEND -DN=4 -DKILLP -D$flag; done

check ok group
for flag in NO_SEQ EARLY; do check broken group -D$flag; done
check broken group -DN=4 -DS=1 -DNO_FLOOD

check ok call
check ok call -DN=4 -DD=1
for flag in REUSE NO_VOID NO_TAKEN FREE_EARLY NUMBER_FIRST; do check broken call -D$flag; done

check ok lock
check ok lock -DN=3 -DLOCKS=1
check ok lock -DLIES=1 -DLOCKS=1
for flag in GONE_EARLY NO_FENCE NO_RECALL PLAIN_RECALL KEEP_GRANT DROP_DIED TAKE_GRANT; do check broken lock -D$flag; done
check broken lock -DN=3 -DDROP_IDLE
for flag in ANY_RELEASE ONE_WORD; do check broken lock -DLIES=1 -DLOCKS=1 -D$flag; done

check ok broadcast
check ok broadcast -DWAIT
for flag in NO_FIRST FIRST_LATE TAIL_EARLY; do check broken broadcast -D$flag; done

check ok names
check ok names -DGIVE_UPS=1
check ok names -DCLAIMS=2
check ok names -DSTARTS=0 -DCLAIMS=2
check ok names -DSTARTS=0 -DGIVE_UPS=1 -DKILLS=1
for flag in ONE NO_HEAR NO_CLAIMING LIST_HELD FIRST_LISTED; do check broken names -D$flag; done
for flag in LATE_ORDER NO_ORDER; do check broken names -DSTARTS=0 -DCLAIMS=2 -D$flag; done
check broken names -DSTARTS=0 -DKILLS=1 -DDOWN_DENIES
check broken names -DCLAIMS=2 -DTAKEN_HEARD

check ok table
for flag in NO_SUM NO_NEWER NO_VERSION ONE_HEAD IN_PLACE EARLY ANY_ORDER; do check broken table -D$flag; done
check ok table -DCHAIN
for flag in NO_MOVED NO_INHERIT NO_HOME NO_SET DROP_FIRST FILL_FIRST; do check broken table -DCHAIN -D$flag; done

check ok agree
for flag in NO_PASS FRESH NO_WAIT OLD; do check broken agree -D$flag; done
