"""A short text, written for this package, to try language models on plain prose."""

PASSAGE = """\
The ferry that crosses the bay has two captains, and they have never agreed on anything except the tides. Maren takes
the morning boats. She likes the light low on the water and the quiet of the first passengers, who are mostly bakers and
nurses on their way home. Ivo takes the evening boats. He says that nobody has seen the bay who has not seen it turn from
green to copper in the time it takes to drink a cup of tea.

One spring the harbour office decided that the old bell on the pier should be replaced by a horn. The bell had been rung by
hand for ninety years, once when the ferry left and twice when it came back. The horn, said the office, could be heard from
farther away and would not need anybody to pull a rope. Maren wrote a letter against the horn. Ivo, who had not written a
letter since he was at school, wrote one too. Neither of them knew about the other's letter until both were read aloud at the
meeting, one after the other, and people began to laugh, because the two letters made the same argument in nearly the same
words. A bell, they said, tells you who is ringing it. When Maren rings it, the strokes are short and even. When Ivo rings it,
there is a pause before the second stroke, as if he wanted to make sure that the first had arrived.

The office kept the bell. It also kept the horn, for fog, and so the town now has both. If you stand on the pier in October,
when the fog comes in from the north and the gulls walk about on the planks as though they were waiting for somebody, you
can hear the horn first, low and without any hurry, and then, much closer than you expected, the bell. Children who grow up
near the water learn to count the seconds between the two. If there are fewer than ten, the ferry is already turning, and it
is time to run. If there are more than twenty, there is time for a second cup of tea, and for the question that visitors
always ask: which of the two captains is on the bridge tonight? Nobody in the town needs to look. They wait for the second
stroke of the bell, and when it comes late, they smile and say that it is Ivo, and that the water must be copper by now.
"""
